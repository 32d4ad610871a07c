"""Functions that are written whole when the graph is legalized: not fused, and not scheduled again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import te, tirx

from worker.compiler.schedules.annotations import OPAQUE, PATTERN, SCHEDULED

INDEX = "int64"
"""The dtype of their loops."""

Kind = tuple[tuple[int, ...], str]
"""A tensor's shape and dtype."""


def signature(inputs: Mapping[str, Kind], results: Mapping[str, Kind]) -> tirx.PrimFunc:
    """A function of tensors by name, marked as scheduled; its loops do not matter."""
    given = [te.placeholder(shape, dtype, name) for name, (shape, dtype) in inputs.items()]
    made = [te.compute(shape, _zeros(dtype), name) for name, (shape, dtype) in results.items()]
    function = te.create_prim_func([*given, *made]).without_attr("global_symbol")
    return function.with_attr(SCHEDULED, True).with_attr(PATTERN, OPAQUE).with_attr("tirx.noalias", True)


def _zeros(dtype: str) -> Callable[..., Any]:
    return lambda *_place: tirx.const(0, dtype)
