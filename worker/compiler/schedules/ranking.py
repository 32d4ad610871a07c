"""Ranked alternatives: pure functions with which a family lists its plans."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any


def by_rank(*alternatives: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    """Every combination of alternatives, each of which comes best first: those that give up least, first."""
    ranked = product(*(enumerate(each) for each in alternatives))
    ordered = sorted(ranked, key=lambda combination: sum(rank for rank, _ in combination))
    return tuple(tuple(choice for _, choice in combination) for combination in ordered)


def either(expected: bool) -> tuple[bool, bool]:
    """Both truth values, the expected one first."""
    return (expected, not expected)
