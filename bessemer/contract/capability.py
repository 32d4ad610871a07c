"""What a compilation needs of the worker that takes it, and what a worker's processor lacks.

A worker measures what it compiles, so it takes a compilation only where its own processor runs the target's
code. Pure: the worker's compiler has said beforehand what it knows and what the processor lacks.
"""

from dataclasses import dataclass
from typing import Self

from pydantic import Field

from bessemer.contract.base import Document
from bessemer.contract.target import PRESETS_BY_NAME, ExplicitTarget, Target, architecture_of


class Capability(Document):
    """What a worker cannot run. What its compiler does not know it takes, and says what is wrong with it."""

    architecture: str = Field(default="", description="Of its processor, such as `x86_64`.")
    foreign: tuple[str, ...] = Field(default=(), description="Other architectures that its compiler knows.")
    processors: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Processors whose code its own does not run, each with the instruction sets that it "
        "lacks for them.",
    )
    lacking: tuple[str, ...] = Field(
        default=(), description="Every instruction set that its compiler knows and its processor lacks."
    )
    dependents: dict[str, tuple[str, ...]] = Field(
        default={},
        description="Instruction sets without which its compiler leaves out others, each with those of them "
        "that its processor lacks.",
    )


@dataclass(frozen=True)
class Needs:
    """What code for a target needs of a processor. As a text: ``x86_64 znver4 +avx512vnni``."""

    architecture: str
    mcpu: str
    features: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.architecture, self.mcpu, *self.features))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The needs that ``str`` wrote."""
        architecture, mcpu, *features = text.split(" ")
        return cls(architecture, mcpu, tuple(features))


def needs_of(target: Target) -> Needs | None:
    """What a target needs; None where it is the worker's own processor, whichever that is."""
    if isinstance(target, ExplicitTarget):
        return Needs(architecture_of(target.triple), target.mcpu, target.features)
    preset = PRESETS_BY_NAME[target.preset]
    return None if preset.mcpu is None else Needs(architecture_of(preset.triple), preset.mcpu)


def lacks(capability: Capability, needs: Needs | None) -> tuple[str, ...]:
    """What a worker lacks to run code with such needs.

    Returns:
        Names of instruction sets, or the architecture where it is another one; nothing where it can run it,
        or where its compiler does not know the target, so that it will refuse it with a reason.
    """
    if needs is None:
        return ()
    if needs.architecture != capability.architecture:
        return (needs.architecture,) if needs.architecture in capability.foreign else ()
    lacking = set(capability.processors.get(needs.mcpu, ()))
    for (
        feature
    ) in needs.features:  # as the compiler does: of those that contradict each other, the last holds
        sign, name = feature[0], feature[1:]
        if sign == "+":
            lacking |= {name} & set(capability.lacking)
        else:
            lacking -= {name, *capability.dependents.get(name, ())}
    return tuple(sorted(lacking))
