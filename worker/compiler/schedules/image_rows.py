"""Images in blocks count all their dimensions but the last as one: their rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx

Sizes = tuple[int, ...]
Expression = Any


def rows_of(sizes: Sizes) -> int:
    """The rows of an image: 1 where it has one dimension."""
    return prod(sizes[:-1])


def split_rows(row: Expression, sizes: Sizes) -> tuple[Expression, ...]:
    """The indices of all dimensions but the last, given the row."""
    indices: list[Expression] = []
    for position in reversed(range(len(sizes) - 1)):
        indices.insert(0, row if position == 0 else row % sizes[position])
        row = row // sizes[position]
    return tuple(indices)


def join_rows(indices: Sequence[Expression], sizes: Sizes) -> Expression:
    """The row of a place; ``indices`` holds one index per dimension."""
    row: Expression = tirx.IntImm("int64", 0)
    for position in range(len(sizes) - 1):
        row = indices[0] if position == 0 else row * sizes[position] + indices[position]
    return row
