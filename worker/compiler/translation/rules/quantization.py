"""Quantized models: integers by a scale and a zero point."""

from __future__ import annotations

from worker.compiler.quantized_operators import IMPLEMENTATIONS, NAMESPACE
from worker.compiler.translation.rule import Decomposition

RULES = tuple(
    Decomposition(f"{NAMESPACE}.{overload}", compute) for overload, compute in IMPLEMENTATIONS.items()
)
