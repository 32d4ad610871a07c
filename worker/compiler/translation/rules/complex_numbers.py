"""Operators on complex numbers, computed on their real and imaginary parts.

Most operators either apply to both parts alike, or multiply. The others have formulas here. Division and
the square root scale or choose the form by sign, so that no digits cancel; other formulas are textbook ones.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import OF_COMPLEX, ComplexDecomposition, Decomposition, Parts, Rules

Value = Any
"""Parts, a real tensor, or a number that may be complex."""

_aten = torch.ops.aten
_MAX_MULTIPLICATIONS = 8
_SATURATED = 20.0
"""tanh is 1 in float64 from here on."""


def real(value: Value) -> Any:
    """The real part of a value, or of each value in a list; others are returned unchanged."""
    if isinstance(value, Parts | complex):
        return value.real
    return [real(one) for one in value] if isinstance(value, list | tuple) else value


def imaginary(value: Value) -> Any:
    """The imaginary part of a value, or of each value in a list: zero where it is real."""
    if isinstance(value, Parts):
        return value.imaginary
    if isinstance(value, complex):
        return value.imag
    if isinstance(value, list | tuple):
        return [imaginary(one) for one in value]
    if isinstance(value, Tensor):
        return torch.zeros_like(value)
    return None if value is None else 0


def is_real(value: Value) -> bool:
    """Whether a value has no imaginary part."""
    return not isinstance(value, Parts | complex)


def on_each_part(apply: Any, data: tuple[int, ...] = (0,)) -> Callable[..., Any]:
    """Apply an operator to the real parts, and to the imaginary parts, of the arguments at some positions."""

    def compute(*arguments: Any, **named: Any) -> Any:
        if (dtype := named.get("dtype")) is not None:
            named["dtype"] = dtype.to_real()

        def of(part: Callable[[Any], Any]) -> Any:
            chosen = (part(one) if place in data else one for place, one in enumerate(arguments))
            return apply(*chosen, **named)

        left, structure = pytree.tree_flatten(of(real))
        right = pytree.tree_leaves(of(imaginary))
        return pytree.tree_unflatten([Parts(*pair) for pair in zip(left, right, strict=True)], structure)

    return compute


def product(apply: Callable[..., Tensor]) -> Callable[..., Any]:
    """An operator that is linear in each of its first two arguments."""

    def compute(left: Value, right: Value, *rest: Any) -> Parts | Tensor:
        def of(one: Any, other: Any) -> Any:
            return apply(one, other, *rest)

        a, c = real(left), real(right)
        if is_real(left) and is_real(right):
            return of(a, c)
        if is_real(left):
            return Parts(of(a, c), of(a, imaginary(right)))
        b = imaginary(left)
        if is_real(right):
            return Parts(of(a, c), of(b, c))
        d = imaginary(right)
        return Parts(of(a, c) - of(b, d), of(a, d) + of(b, c))

    return compute


multiply = product(operator.mul)


def add(left: Value, right: Value, *, alpha: Value = 1) -> Parts:
    """``left + alpha * right``."""
    scaled = right if isinstance(alpha, int | float) and alpha == 1 else multiply(right, alpha)
    whole = real(left) + real(scaled)
    if is_real(left) or is_real(scaled):
        return Parts(
            whole, (imaginary(scaled) if is_real(left) else imaginary(left)) + torch.zeros_like(whole)
        )
    return Parts(whole, imaginary(left) + imaginary(scaled))


def subtract(left: Value, right: Value, *, alpha: Value = 1) -> Parts:
    """``left - alpha * right``."""
    return add(left, right, alpha=-alpha)


def _subtract_from(left: Value, right: Value, alpha: Value = 1) -> Parts:
    return subtract(right, left, alpha=alpha)


def divide(left: Value, right: Value) -> Parts:
    """``left / right``; a divisor is scaled by its larger part, so that its square cannot overflow."""
    if is_real(right):
        return Parts(real(left) / right, imaginary(left) / right)
    if isinstance(right, complex):
        return multiply(left, 1 / right if right else complex(math.nan, math.nan))
    scale = torch.maximum(right.real.abs(), right.imaginary.abs())
    c, d = right.real / scale, right.imaginary / scale
    conjugate = multiply(left, Parts(c, -d))
    size = (c * c + d * d) * scale
    return Parts(conjugate.real / size, conjugate.imaginary / size)


def conjugate(value: Parts) -> Parts:
    """The conjugate."""
    return Parts(value.real, -value.imaginary)


def absolute(value: Parts) -> Tensor:
    """The absolute value, without overflow of the squares."""
    return torch.hypot(value.real, value.imaginary)


def angle(value: Parts) -> Tensor:
    """The angle, from -π to π."""
    return torch.atan2(value.imaginary, value.real)


def polar(length: Tensor, turn: Tensor) -> Parts:
    """The number of an absolute value and an angle."""
    return Parts(length * turn.cos(), length * turn.sin())


def exponential(value: Parts) -> Parts:
    """The exponential."""
    return polar(value.real.exp(), value.imaginary)


def logarithm(value: Value) -> Parts:
    """The principal logarithm."""
    if isinstance(value, Tensor):
        value = Parts(value, torch.zeros_like(value))
    return Parts(absolute(value).log(), angle(value))


def root(value: Parts) -> Parts:
    """The principal square root: the larger part from the absolute value, the other by division."""
    x, y = value
    larger = (absolute(value) * 0.5 + x.abs() * 0.5).sqrt()
    smaller = torch.where(larger == 0, 0.0, y / (2 * larger))
    right = x >= 0
    return Parts(torch.where(right, larger, smaller.abs()), torch.where(right, smaller, larger.copysign(y)))


def power(base: Value, exponent: Value) -> Parts:
    """``base ** exponent``; a power of zero is zero, or one if the exponent is zero."""
    if (
        isinstance(exponent, int | float)
        and exponent == int(exponent)
        and 0 < abs(exponent) < _MAX_MULTIPLICATIONS
    ):
        found = base
        for _ in range(int(abs(exponent)) - 1):
            found = multiply(found, base)
        return found if exponent > 0 else divide(1.0, found)
    if isinstance(exponent, int | float) and exponent == 0.5:
        return root(base)
    if isinstance(base, int | float | complex) and base == 0:
        base = torch.zeros(())
    if isinstance(base, int | float | complex):
        return exponential(multiply(exponent, cmath.log(base)))
    found = exponential(multiply(logarithm(base), exponent))
    size = absolute(base) if isinstance(base, Parts) else base.abs()
    if isinstance(exponent, int | float | complex):
        at_zero: Any = float(exponent == 0)
    else:
        at_zero = (absolute(exponent) if isinstance(exponent, Parts) else exponent.abs()).eq(0).to(size.dtype)
    return Parts(torch.where(size == 0, at_zero, found.real), torch.where(size == 0, 0.0, found.imaginary))


def sine(value: Parts) -> Parts:
    """The sine."""
    x, y = value
    return Parts(x.sin() * y.cosh(), x.cos() * y.sinh())


def cosine(value: Parts) -> Parts:
    """The cosine."""
    x, y = value
    return Parts(x.cos() * y.cosh(), -(x.sin() * y.sinh()))


def hyperbolic_sine(value: Parts) -> Parts:
    """The hyperbolic sine."""
    x, y = value
    return Parts(x.sinh() * y.cos(), x.cosh() * y.sin())


def hyperbolic_cosine(value: Parts) -> Parts:
    """The hyperbolic cosine."""
    x, y = value
    return Parts(x.cosh() * y.cos(), x.sinh() * y.sin())


def hyperbolic_tangent(value: Parts) -> Parts:
    """The hyperbolic tangent."""
    x, y = value.real.clamp(-_SATURATED, _SATURATED) * 2, value.imaginary * 2
    below = x.cosh() + y.cos()
    return Parts(x.sinh() / below, y.sin() / below)


def tangent(value: Parts) -> Parts:
    """The tangent: ``-i tanh(iz)``."""
    turned = hyperbolic_tangent(Parts(-value.imaginary, value.real))
    return Parts(turned.imaginary, -turned.real)


def _roots_beside_one(value: Parts) -> tuple[Parts, Parts]:
    """The roots of ``1 - z`` and ``1 + z``, from which the inverse functions follow (W. Kahan, 1987)."""
    x, y = value
    return root(Parts(1 - x, -y)), root(Parts(1 + x, y))


def inverse_sine(value: Parts) -> Parts:
    """The principal inverse sine."""
    below, above = _roots_beside_one(value)
    cosine_of = below.real * above.real - below.imaginary * above.imaginary
    crossed = above.real * below.imaginary - above.imaginary * below.real
    return Parts(torch.atan2(value.real, cosine_of), -crossed.asinh())


def inverse_cosine(value: Parts) -> Parts:
    """The principal inverse cosine."""
    below, above = _roots_beside_one(value)
    crossed = above.real * below.imaginary - above.imaginary * below.real
    return Parts(2 * torch.atan2(below.real, above.real), crossed.asinh())


def inverse_hyperbolic_sine(value: Parts) -> Parts:
    """The principal inverse hyperbolic sine: ``-i asin(iz)``."""
    turned = inverse_sine(Parts(-value.imaginary, value.real))
    return Parts(turned.imaginary, -turned.real)


def inverse_hyperbolic_cosine(value: Parts) -> Parts:
    """The principal inverse hyperbolic cosine, by the roots of ``z - 1`` and ``z + 1``."""
    x, y = value
    below, above = root(Parts(x - 1, y)), root(Parts(x + 1, y))
    along = below.real * above.real + below.imaginary * above.imaginary
    return Parts(along.asinh(), 2 * torch.atan2(below.imaginary, above.real))


def inverse_hyperbolic_tangent(value: Parts) -> Parts:
    """The principal inverse hyperbolic tangent."""
    x, y = value
    ratio = 4 * x / ((1 - x) * (1 - x) + y * y)
    return Parts(0.25 * ratio.log1p(), 0.5 * torch.atan2(2 * y, (1 - x) * (1 + x) - y * y))


def inverse_tangent(value: Parts) -> Parts:
    """The principal inverse tangent: ``-i atanh(iz)``."""
    turned = inverse_hyperbolic_tangent(Parts(-value.imaginary, value.real))
    return Parts(turned.imaginary, -turned.real)


def sigmoid(value: Parts) -> Parts:
    """``1 / (1 + exp(-z))``, by the hyperbolic tangent of half the value."""
    half = hyperbolic_tangent(Parts(value.real * 0.5, value.imaginary * 0.5))
    return Parts(half.real * 0.5 + 0.5, half.imaginary * 0.5)


def sign(value: Parts) -> Parts:
    """``z / |z|``, zero at zero."""
    size = absolute(value)
    return Parts(*(torch.where(size == 0, 0.0, part / size) for part in value))


def _scaled(compute: Callable[[Parts], Parts], factor: float) -> Callable[[Parts], Parts]:
    return lambda value: multiply(compute(value), factor)


def _nonzero(value: Parts) -> Tensor:
    return (value.real != 0) | (value.imaginary != 0)


def _equal(left: Value, right: Value) -> Tensor:
    return (real(left) == real(right)) & (imaginary(left) == imaginary(right))


def _unequal(left: Value, right: Value) -> Tensor:
    return (real(left) != real(right)) | (imaginary(left) != imaginary(right))


def _either(test: Callable[[Tensor], Tensor]) -> Callable[[Parts], Tensor]:
    return lambda value: test(value.real) | test(value.imaginary)


def _both(test: Callable[[Tensor], Tensor]) -> Callable[[Parts], Tensor]:
    return lambda value: test(value.real) & test(value.imaginary)


def _of_nonzero(apply: Any) -> Callable[..., Tensor]:
    def compute(value: Value, *rest: Any) -> Tensor:
        given = [_nonzero(one) if isinstance(one, Parts) else one for one in rest]
        return apply(_nonzero(value) if isinstance(value, Parts) else value, *given)

    return compute


def _where(condition: Tensor, left: Value, right: Value) -> Parts:
    return Parts(
        torch.where(condition, real(left), real(right)),
        torch.where(condition, imaginary(left), imaginary(right)),
    )


def _times(left: Parts, right: Parts) -> Parts:
    found = multiply(left, right)
    assert isinstance(found, Parts)
    return found


def _along(value: Parts, axis: int, first: int, last: int) -> Parts:
    return Parts(*(part.narrow(axis, first, last - first) for part in value))


def _product(value: Parts, axis: int, keepdim: bool = False, *, dtype: Any = None) -> Parts:
    """By halves, so that the number of multiplications in the program is the logarithm of the length."""
    count = value.real.shape[axis]
    found = value
    while count > 1:
        half = count // 2
        pairs = _times(_along(found, axis, 0, half), _along(found, axis, half, 2 * half))
        rest = _along(found, axis, 2 * half, count)
        found = (
            Parts(*(torch.cat(two, axis) for two in zip(pairs, rest, strict=True))) if count % 2 else pairs
        )
        count = half + count % 2
    return found if keepdim else Parts(*(part.squeeze(axis) for part in found))


def _product_of_all(value: Parts, *, dtype: Any = None) -> Parts:
    return _product(Parts(*(part.flatten() for part in value)), 0)


def _running_product(value: Parts, axis: int, *, dtype: Any = None) -> Parts:
    """By doubling: after a step of width w, each element is the product of the last 2w."""
    count, width, found = value.real.shape[axis], 1, value
    while width < count:
        tail = _times(_along(found, axis, width, count), _along(found, axis, 0, count - width))
        head = _along(found, axis, 0, width)
        found = Parts(*(torch.cat(two, axis) for two in zip(head, tail, strict=True)))
        width *= 2
    return found


def _mean_of_all(value: Parts, *, dtype: Any = None) -> Parts:
    return Parts(*(part.mean() for part in value))


def _vector_norm(
    value: Parts, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    return torch.linalg.vector_norm(absolute(value), order, dim, keepdim)


def _variance(value: Parts, *arguments: Any, **named: Any) -> Tensor:
    left, right = (_aten.var.correction(part, *arguments, **named) for part in value)
    return left + right


def _variance_and_mean(
    value: Parts, dim: list[int] | None = None, *, keepdim: bool = False, **named: Any
) -> tuple[Tensor, Parts]:
    axes = dim or list(range(value.real.dim()))
    mean = Parts(*(part.mean(axes, keepdim) for part in value))
    return _variance(value, dim, keepdim=keepdim, **named), mean


def _add_product(bias: Value, left: Value, right: Value, *, beta: Value = 1, alpha: Value = 1) -> Parts:
    whole = multiply(product(torch.matmul)(left, right), alpha)
    return add(multiply(bias, beta), whole)


def _linear(data: Value, weight: Value, bias: Value = None) -> Parts:
    flat = product(torch.nn.functional.linear)(data, weight)
    return flat if bias is None else add(flat, bias)


def _convolution(data: Value, weight: Value, bias: Value, *rest: Any) -> Parts:
    found = product(lambda one, other: _aten.convolution.default(one, other, None, *rest))(data, weight)
    if bias is None:
        return found
    axes = (1, -1, *(1,) * (found.real.dim() - 2))
    return add(found, Parts(*(part.reshape(axes) for part in (real(bias), imaginary(bias)))))


def _conjugate_dot(left: Parts, right: Parts) -> Parts:
    return product(torch.dot)(conjugate(left), right)


def _view_as_real(value: Parts) -> Tensor:
    return torch.stack(value, -1)


def _view_as_complex(pairs: Tensor) -> Parts:
    return Parts(pairs.select(-1, 0), pairs.select(-1, 1))


def _view_dtype(value: Value, dtype: torch.dtype) -> Value:
    if isinstance(value, Tensor) and dtype.to_real() == value.dtype:
        return _view_as_complex(value.unflatten(-1, (-1, 2)))
    if isinstance(value, Parts) and dtype == value.real.dtype:
        return torch.stack(value, -1).flatten(-2)
    raise UntranslatableError(f"a view of complex numbers as {dtype}")


def _to_copy(value: Value, *, dtype: torch.dtype | None = None, **_: Any) -> Value:
    """Parts are cast where results get torch's dtypes; a real number gets an imaginary part there."""
    return value if dtype is None or dtype.is_complex else real(value).to(dtype)


def _fill(shape: list[int], value: Value = 0, **named: Any) -> Parts:
    width = named["dtype"].to_real() if named.get("dtype") is not None else torch.get_default_dtype()
    return Parts(*(torch.full(shape, part, dtype=width) for part in (real(value), imaginary(value))))


def _fill_like(data: Value, value: Value = 0, **named: Any) -> Parts:
    like, dtype = real(data), named.get("dtype")
    width = like.dtype if dtype is None else dtype.to_real()
    return Parts(*(torch.full_like(like, part, dtype=width) for part in (real(value), imaginary(value))))


def _empty(shape: list[int], *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Parts:
    return _fill(shape, 0, dtype=dtype)


def _empty_like(data: Value, *, dtype: torch.dtype | None = None, **_: Any) -> Parts:
    return _fill_like(data, 0, dtype=dtype)


def _scalar(value: Value, **named: Any) -> Parts:
    return _fill([], value, **named)


def _pad(value: Parts, pad: list[int], fill: Value = 0) -> Parts:
    parts = ((value.real, real(fill)), (value.imaginary, imaginary(fill)))
    return Parts(*(torch.nn.functional.pad(part, pad, value=float(one)) for part, one in parts))


def _block(matrix: Parts) -> Tensor:
    """The real matrix ``[[a, -b], [b, a]]``, which multiplies stacked parts as ``a + ib`` does."""
    a, b = matrix
    return torch.cat((torch.cat((a, -b), -1), torch.cat((b, a), -1)), -2)


def _halves(stacked: Tensor, size: int, axis: int) -> Parts:
    return Parts(stacked.narrow(axis, 0, size), stacked.narrow(axis, size, size))


def _solve(matrix: Value, right: Value, *, left: bool = True) -> Parts:
    if not left:
        raise UntranslatableError("complex systems with the matrix on the right")
    whole = Parts(real(matrix), imaginary(matrix))
    size, shape = whole.real.shape[-1], real(right).shape
    is_vector = len(shape) == 1 or shape == whole.real.shape[:-1]
    columns = [part.unsqueeze(-1) if is_vector else part for part in (real(right), imaginary(right))]
    found = _halves(torch.linalg.solve_ex(_block(whole), torch.cat(columns, -2))[0], size, -2)
    return Parts(*(part.squeeze(-1) for part in found)) if is_vector else found


def _inverse(matrix: Parts) -> Parts:
    size = matrix.real.shape[-1]
    return _halves(torch.linalg.inv_ex(_block(matrix))[0].narrow(-1, 0, size), size, -2)


def _inverse_and_info(matrix: Parts, *, check_errors: bool = False) -> Any:
    return _inverse(matrix), torch.zeros(matrix.real.shape[:-2], dtype=torch.int32)


_MOVES = (
    "_unsafe_view.default alias.default as_strided.default clone.default cumsum.default "
    "detach.default diag_embed.default diagonal.default embedding.default expand.default flip.default "
    "gather.default index.Tensor index_select.default lift_fresh_copy.default mean.dim neg.default "
    "permute.default repeat.default reshape.default roll.default select.int slice.Tensor split.Tensor "
    "split_with_sizes.default squeeze.default squeeze.dim squeeze.dims sum.default sum.dim_IntList t.default "
    "take.default transpose.int tril.default triu.default unbind.int unfold.default unsqueeze.default "
    "view.default"
)
"""Operators that apply to the parts of their first argument alike."""

_WRITES = {
    "_index_put_impl.default": (0, 2),
    "as_strided_scatter.default": (0, 1),
    "cat.default": (0,),
    "copy.default": (0, 1),
    "diagonal_scatter.default": (0, 1),
    "fill.Scalar": (0, 1),
    "fill.Tensor": (0, 1),
    "index_add.default": (0, 3),
    "index_copy.default": (0, 3),
    "index_fill.int_Scalar": (0, 3),
    "index_put.default": (0, 2),
    "masked_fill.Scalar": (0, 2),
    "masked_fill.Tensor": (0, 2),
    "masked_scatter.default": (0, 2),
    "scatter.src": (0, 3),
    "scatter.value": (0, 3),
    "scatter_add.default": (0, 3),
    "select_scatter.default": (0, 1),
    "slice_scatter.default": (0, 1),
    "stack.default": (0,),
}
"""Operators on several complex arguments alike, with the positions of these."""

_PRODUCTS = ("bmm.default", "dot.default", "matmul.default", "mm.default", "mv.default")

_FORMULAS: dict[str, Callable[..., Any]] = {
    "_conj.default": conjugate,
    "_conj_physical.default": conjugate,
    "_assert_tensor_metadata.default": lambda *_, **__: None,
    "_neg_view.default": on_each_part(torch.neg),
    "_to_copy.default": _to_copy,
    "abs.default": absolute,
    "add.Scalar": add,
    "add.Tensor": add,
    "addmm.default": _add_product,
    "all.default": _of_nonzero(_aten.all.default),
    "all.dim": _of_nonzero(_aten.all.dim),
    "angle.default": angle,
    "any.default": _of_nonzero(_aten.any.default),
    "any.dim": _of_nonzero(_aten.any.dim),
    "baddbmm.default": _add_product,
    "complex.default": Parts,
    "constant_pad_nd.default": _pad,
    "convolution.default": _convolution,
    "cos.default": cosine,
    "cosh.default": hyperbolic_cosine,
    "cumprod.default": _running_product,
    "div.Scalar": divide,
    "div.Tensor": divide,
    "empty.memory_format": _empty,
    "empty_like.default": _empty_like,
    "empty_permuted.default": _empty,
    "eq.Scalar": _equal,
    "eq.Tensor": _equal,
    "exp.default": exponential,
    "expm1.default": lambda value: subtract(exponential(value), 1),
    "full.default": _fill,
    "full_like.default": _fill_like,
    "isfinite.default": _both(torch.isfinite),
    "isinf.default": _either(torch.isinf),
    "isnan.default": _either(torch.isnan),
    "inverse.default": _inverse,
    "linalg_inv.default": _inverse,
    "linalg_inv_ex.default": _inverse_and_info,
    "linalg_solve.default": _solve,
    "linalg_vector_norm.default": _vector_norm,
    "linear.default": _linear,
    "log.default": logarithm,
    "log10.default": _scaled(logarithm, 1 / math.log(10)),
    "log1p.default": lambda value: logarithm(add(value, 1)),
    "log2.default": _scaled(logarithm, 1 / math.log(2)),
    "logical_and.default": _of_nonzero(torch.logical_and),
    "logical_not.default": _of_nonzero(torch.logical_not),
    "logical_or.default": _of_nonzero(torch.logical_or),
    "logical_xor.default": _of_nonzero(torch.logical_xor),
    "mean.default": _mean_of_all,
    "mul.Scalar": multiply,
    "mul.Tensor": multiply,
    "ne.Scalar": _unequal,
    "ne.Tensor": _unequal,
    "polar.default": polar,
    "pow.Scalar": power,
    "pow.Tensor_Scalar": power,
    "pow.Tensor_Tensor": power,
    "prod.default": _product_of_all,
    "prod.dim_int": _product,
    "reciprocal.default": lambda value: divide(1.0, value),
    "rsqrt.default": lambda value: divide(1.0, root(value)),
    "rsub.Scalar": _subtract_from,
    "rsub.Tensor": _subtract_from,
    "scalar_tensor.default": _scalar,
    "sgn.default": sign,
    "sigmoid.default": sigmoid,
    "sin.default": sine,
    "acos.default": inverse_cosine,
    "acosh.default": inverse_hyperbolic_cosine,
    "asin.default": inverse_sine,
    "asinh.default": inverse_hyperbolic_sine,
    "atan.default": inverse_tangent,
    "atanh.default": inverse_hyperbolic_tangent,
    "sinh.default": hyperbolic_sine,
    "sqrt.default": root,
    "sub.Scalar": subtract,
    "sub.Tensor": subtract,
    "tan.default": tangent,
    "tanh.default": hyperbolic_tangent,
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
    "vdot.default": _conjugate_dot,
    "view.dtype": _view_dtype,
    "view_as_complex.default": _view_as_complex,
    "view_as_real.default": _view_as_real,
    "where.self": _where,
}


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(_aten, packet), overload)


def _all() -> dict[str, Callable[..., Any]]:
    found = {name: on_each_part(_operator(name)) for name in _MOVES.split()}
    found |= {name: on_each_part(_operator(name), data) for name, data in _WRITES.items()}
    found |= {name: product(_operator(name)) for name in _PRODUCTS}
    return found | _FORMULAS


RULES: Rules = (
    Decomposition("aten._neg_view.default", torch.neg),
    *(ComplexDecomposition(f"aten.{name}{OF_COMPLEX}", compute) for name, compute in _all().items()),
)
