"""Match the requirements of a target with the instruction sets of a worker's processor.

A worker runs and measures the code that it compiles, so it takes a compilation only if its own processor can
run the target's code. These functions are pure: each worker reports its compiler's knowledge in advance.
"""

from collections.abc import Container
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.target import PRESETS_BY_NAME, ExplicitTarget, Target
from bessemer.contract.triple import platform_of


class Capability(Document):
    """What a worker cannot run. It accepts unknown targets, and fails them with a reason."""

    architecture: str = Field(
        default="", description="The architecture of the worker's processor, such as `x86_64`."
    )
    preset: str = Field(
        default="",
        description="The preset that `host` equals on this worker: that of its processor, or else the preset "
        "with the most instruction sets among those that the processor can run.",
    )
    foreign: tuple[str, ...] = Field(
        default=(), description="Other architectures that the worker's compiler knows."
    )
    programs: tuple[str, ...] = Field(
        default=(),
        description="Other platforms whose programs the worker can run, under an emulator or with their own "
        "libc, such as `aarch64` or `x86_64-musl`. It verifies libraries for them and measures none.",
    )
    processors: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Processors whose code the worker cannot run, each with the instruction sets that the "
        "worker's own processor lacks.",
    )
    lacking: tuple[str, ...] = Field(
        default=(), description="Instruction sets that the compiler knows and the processor lacks."
    )
    dependents: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Instruction sets that others depend on, each with its dependents that the processor "
        "lacks. A target that removes such a set removes its dependents, too.",
    )


@dataclass(frozen=True)
class Needs:
    """What a target's code requires of a machine. As text: ``x86_64 znver4 +avx512vnni``.

    The platform is the architecture, and the C library unless that is glibc, such as ``aarch64-musl``.
    """

    platform: str
    mcpu: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.platform, self.mcpu, *self.features))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that ``str`` produces."""
        platform, mcpu, *features = text.split(" ")
        return cls(platform, mcpu, tuple(features))


def needs_of(target: Target) -> Needs | None:
    """What a target requires; None for ``host``, which any worker can run."""
    if isinstance(target, ExplicitTarget):
        return Needs(platform_of(target.triple), target.mcpu, target.features)
    preset = PRESETS_BY_NAME[target.preset]
    return None if preset.mcpu is None else Needs(platform_of(preset.triple), preset.mcpu, preset.features)


def lacks(capability: Capability, needs: Needs | None, on_devices: Container[str] = ()) -> tuple[str, ...]:
    """What a worker lacks to run code with these needs.

    Args:
        capability: the worker's.
        needs: the target's.
        on_devices: other platforms, for which live devices verify what the worker compiles.

    Returns:
        The missing instruction sets, or the architecture if it differs. Empty if the worker can run the code,
        or if its compiler does not know the target and will refuse it with a reason.
    """
    if needs is None:
        return ()
    if needs.platform in capability.programs:
        return ()
    if needs.platform != capability.architecture:
        architecture = needs.platform.partition("-")[0]
        known = architecture in (capability.architecture, *capability.foreign)
        return (needs.platform,) if known and needs.platform not in on_devices else ()
    lacking = set(capability.processors.get(needs.mcpu, ()))
    for feature in needs.features:  # the last of two contradicting features wins, as in LLVM
        sign, name = feature[0], feature[1:]
        if sign == "+":
            lacking |= {name} & set(capability.lacking)
        else:
            lacking -= {name, *capability.dependents.get(name, ())}
    return tuple(sorted(lacking))
