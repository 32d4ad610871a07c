"""The choices of the layout phase, which the processor's model makes unless a search wants others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from worker.compiler.schedules.families.convolution.layers import Layer
from worker.compiler.schedules.processors import Machine

LAYOUT_PHASE = "layout"
"""The phase that a search may repeat, with the phases after it."""


@dataclass(frozen=True)
class LayoutChoices:
    """What a search wants from the layout phase.

    Attributes:
        sides: by layer, the side of a tile. A layer whose weights make that too inexact stays as it is.
        block_bits: the width of a block of channels; None for the processor's vectors.
        activates: whether convolutions may activate a join that they read, a row at a time.
        chains: whether a function may compute a convolution and the windows after it, or two products.
    """

    sides: Mapping[Layer, int] = field(default_factory=dict)
    block_bits: int | None = None
    activates: bool = True
    chains: bool = True

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return bool(self.sides) or self.block_bits is not None or not (self.activates and self.chains)

    def __or__(self, other: LayoutChoices) -> LayoutChoices:
        """What either wants; where they differ, what the other wants."""
        return LayoutChoices(
            {**self.sides, **other.sides},
            self.block_bits if other.block_bits is None else other.block_bits,
            self.activates and other.activates,
            self.chains and other.chains,
        )

    def __ge__(self, other: LayoutChoices) -> bool:
        """Whether this wants all that the other wants."""
        return (self | other) == self

    @property
    def is_about_model(self) -> bool:
        """Whether something is wanted that concerns more than one layer."""
        return bool(replace(self, sides={}))

    def machine(self, machine: Machine) -> Machine:
        """The processor that blocks are made for."""
        return machine if self.block_bits is None else replace(machine, vector_bits=self.block_bits)


AS_EXPECTED = LayoutChoices()
