"""Bundles: groups of a convolution whose outputs share vectors.

A vector of ``lanes`` outputs holds ``lanes / groups`` outputs of each of the bundle's ``groups``, the groups
next to each other, so each vector of weights multiplies ``groups`` adjacent numbers, repeated::

    pixels   of a bundle   [inputs of a group, groups]
    outputs  of a bundle   [vectors, lanes / groups, groups]

    vector[o, g] += pixel[i, g] * weights[i, o, g]
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd


@dataclass(frozen=True)
class Bundle:
    """Some groups of ``inputs`` and ``outputs`` channels each, and the lanes of a vector."""

    groups: int
    inputs: int
    outputs: int
    lanes: int

    @property
    def vectors(self) -> int:
        """Vectors of outputs, or blocks of output channels."""
        return self.groups * self.outputs // self.lanes

    @property
    def input_blocks(self) -> int:
        """Blocks of input channels."""
        return self.groups * self.inputs // self.lanes

    def input_of(self, element: int) -> int:
        """The input channel at a place of a pixel."""
        return element % self.groups * self.inputs + element // self.groups

    def place_of(self, output: int) -> int:
        """The place of an output channel among the bundle's vectors."""
        group, number = divmod(output, self.outputs)
        return number * self.groups + group


def smallest_bundle(inputs: int, outputs: int, lanes: int) -> Bundle:
    """The fewest groups whose inputs and outputs fill whole blocks."""
    return Bundle(lanes // gcd(inputs, outputs, lanes), inputs, outputs, lanes)
