"""The confinement of jobs, as it is reported."""

from enum import StrEnum

from pydantic import Field

from bessemer.contract.base import Document


class SandboxMode(StrEnum):
    """What happens when a layer does not hold."""

    REQUIRED = "required"
    BEST_EFFORT = "best-effort"
    OFF = "off"


class Layer(StrEnum):
    """The layers of the confinement."""

    ENVIRONMENT = "environment"
    PROCESS_GROUP = "process-group"
    UID = "uid"
    RLIMITS = "rlimits"
    NO_NEW_PRIVS = "no-new-privs"
    LANDLOCK = "landlock"
    SECCOMP = "seccomp"


class LayerStatus(Document):
    """Whether one layer holds, and what is to be known about it."""

    layer: Layer = Field(description="A means of confinement.")
    holds: bool = Field(description="As the job itself tried it out.")
    required: bool = Field(description="Whether jobs are refused without it where the mode is `required`.")
    note: str = Field(default="", description="Why it does not hold, or how far; may be empty.")


class SandboxStatus(Document):
    """The layers as a job found them before it opened its upload."""

    mode: SandboxMode = Field(description="`BESSEMER_SANDBOX` of the worker.")
    layers: tuple[LayerStatus, ...] = Field(description="In the order in which they were put on.")

    @property
    def lost(self) -> tuple[Layer, ...]:
        """The layers that do not hold."""
        return tuple(status.layer for status in self.layers if not status.holds)

    @property
    def complete(self) -> bool:
        """Whether every required layer holds."""
        return all(status.holds for status in self.layers if status.required)
