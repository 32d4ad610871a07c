"""Status of the sandbox that confines jobs."""

from pydantic import Field

from bessemer.contract.base import Document, GrowingEnum


class SandboxMode(GrowingEnum):
    """What happens if a layer is not active."""

    REQUIRED = "required"
    BEST_EFFORT = "best-effort"
    OFF = "off"


class Layer(GrowingEnum):
    """The layers of the sandbox."""

    ENVIRONMENT = "environment"
    PROCESS_GROUP = "process-group"
    UID = "uid"
    RLIMITS = "rlimits"
    NO_NEW_PRIVS = "no-new-privs"
    LANDLOCK = "landlock"
    SECCOMP = "seccomp"


class LayerStatus(Document):
    """The status of one layer."""

    layer: Layer = Field(description="Which layer this is.")
    holds: bool = Field(description="Whether the layer is active, as the job itself tested.")
    required: bool = Field(description="Whether the mode `required` refuses jobs without this layer.")
    note: str = Field(default="", description="Why the layer is not active, or its limits; may be empty.")


class SandboxStatus(Document):
    """The layers, as a job found them before it opened its upload."""

    mode: SandboxMode = Field(description="The worker's `BESSEMER_SANDBOX`.")
    layers: tuple[LayerStatus, ...] = Field(description="The layers, in the order of their activation.")

    @property
    def lost(self) -> tuple[Layer, ...]:
        """The layers that are not active."""
        return tuple(status.layer for status in self.layers if not status.holds)

    @property
    def complete(self) -> bool:
        """Whether every required layer is active."""
        return all(status.holds for status in self.layers if status.required)
