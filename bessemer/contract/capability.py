"""Match the requirements of a target with the instruction sets of a worker's processor.

A worker runs and measures the code that it compiles, so it takes a compilation only if its own processor can
run the target's code. These functions are pure: each worker reports its compiler's knowledge in advance.
"""

from dataclasses import dataclass
from typing import Self

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.target import PRESETS_BY_NAME, ExplicitTarget, Target, architecture_of


class Capability(Document):
    """What a worker cannot run. It accepts unknown targets, and fails them with a reason."""

    architecture: str = Field(
        default="", description="The architecture of the worker's processor, such as `x86_64`."
    )
    foreign: tuple[str, ...] = Field(
        default=(), description="Other architectures that the worker's compiler knows."
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
    """What a target's code requires of a processor. As text: ``x86_64 znver4 +avx512vnni``."""

    architecture: str
    mcpu: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.architecture, self.mcpu, *self.features))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that ``str`` produces."""
        architecture, mcpu, *features = text.split(" ")
        return cls(architecture, mcpu, tuple(features))


def needs_of(target: Target) -> Needs | None:
    """What a target requires; None for ``host``, which any worker can run."""
    if isinstance(target, ExplicitTarget):
        return Needs(architecture_of(target.triple), target.mcpu, target.features)
    preset = PRESETS_BY_NAME[target.preset]
    return None if preset.mcpu is None else Needs(architecture_of(preset.triple), preset.mcpu)


def lacks(capability: Capability, needs: Needs | None) -> tuple[str, ...]:
    """What a worker lacks to run code with these needs.

    Returns:
        The missing instruction sets, or the architecture if it differs. Empty if the worker can run the code,
        or if its compiler does not know the target and will refuse it with a reason.
    """
    if needs is None:
        return ()
    if needs.architecture != capability.architecture:
        return (needs.architecture,) if needs.architecture in capability.foreign else ()
    lacking = set(capability.processors.get(needs.mcpu, ()))
    for feature in needs.features:  # the last of two contradicting features wins, as in LLVM
        sign, name = feature[0], feature[1:]
        if sign == "+":
            lacking |= {name} & set(capability.lacking)
        else:
            lacking -= {name, *capability.dependents.get(name, ())}
    return tuple(sorted(lacking))
