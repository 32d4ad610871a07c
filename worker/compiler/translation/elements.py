"""Functions of single elements as tensor expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

Element = Callable[[Any], Any]
"""From an element to one of the result."""


def each(compute: Element) -> Callable[[te.Tensor], te.Tensor]:
    """A tensor expression of a function of elements, to which each is a variable."""

    def whole(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: named(data(*at), compute), name="each")

    return whole


def named(value: Any, body: Element) -> Any:
    """An expression that reads a value several times, which is computed once."""
    if isinstance(value, tirx.Var):
        return body(value)
    variable = tirx.Var("x", value.ty.dtype)
    return tirx.Let(variable, value, body(variable))
