"""Functions of single elements, as tensor expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import Translate

Element = Callable[[Any], Any]
"""Takes an element and returns one element of the result."""

BinaryFunction = Callable[[Any, Any], Any]
"""Takes one element of each operand and returns one element of the result."""


def each(compute: Element) -> Callable[[te.Tensor], te.Tensor]:
    """A tensor expression that applies a function to each element, which is bound to a variable."""

    def whole(data: te.Tensor) -> te.Tensor:
        return te.compute(data.shape, lambda *at: let(data(*at), compute), name="each")

    return whole


def let(value: Any, body: Element) -> Any:
    """Bind a value to a variable, so that an expression that reads it several times computes it once."""
    if isinstance(value, tirx.Var):
        return body(value)
    variable = tirx.Var("x", value.ty.dtype)
    return tirx.Let(variable, value, body(variable))


def broadcast(operation: BinaryFunction) -> Callable[[Any, Any], Any]:
    """A tensor expression that applies a function to the elements of two tensors that broadcast."""

    def compute(left: Any, right: Any) -> Any:
        shape = topi.add(left, right).shape
        left, right = topi.broadcast_to(left, shape), topi.broadcast_to(right, shape)
        return te.compute(shape, lambda *at: operation(left(*at), right(*at)), name="binary")

    return compute


def elementwise(compute: Element, dtype: str | None = None) -> Translate:
    """A rule that applies a function to each element, computed in the result's dtype or in ``dtype``."""

    def translate(emit: Emitter, data: relax.Expr) -> relax.Expr:
        given = emit.cast(data, dtype or wide(emit.dtype))
        return emit.cast(emit.tensor_expression(each(compute), given), emit.dtype)

    return translate


def pairwise(compute: BinaryFunction) -> Translate:
    """A rule that applies a function to the elements of two tensors that broadcast, in the result's dtype."""

    def translate(emit: Emitter, left: relax.Expr, right: relax.Expr) -> relax.Expr:
        operands = (emit.cast(one, emit.dtype) for one in (left, right))
        return emit.tensor_expression(broadcast(compute), *operands)

    return translate


def library_function(name: str) -> Callable[..., Any]:
    """A function of the C math library, in the variant of its argument's dtype."""

    def call(*values: Any) -> Any:
        dtype = str(values[0].ty.dtype)
        return tirx.call_pure_extern(dtype, name if dtype == "float64" else f"{name}f", *values)

    return call


def constant_like(value: float, like: Any) -> Any:
    """A constant in the dtype of another expression."""
    return tirx.const(value, like.ty.dtype)


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """A polynomial by Horner's scheme; coefficients start with the highest power."""
    total = constant_like(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = total * x + constant_like(coefficient, x)
    return total
