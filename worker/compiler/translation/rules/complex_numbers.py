"""Complex numbers as real tensors with a last axis of two, and Fourier transforms of them.

A rule whose name ends in ``OF_COMPLEX`` applies where an argument or the result is complex. The other rules
handle real tensors only. A transform of fixed length is a product with the matrix of its roots of unity (the
defining sum of the discrete Fourier transform), so it takes n² products for n values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from worker.compiler.translation.dtypes import dtype_name, is_number
from worker.compiler.translation.emitter import Emitter, axis_of, dtype_of, fixed, shape_of
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.rule import Rules, rules_of

OF_COMPLEX = " of complex numbers"

_BY_ROOT, _BY_LENGTH = 1, 2
"""Values of torch's ``fft_norm_mode``; 0 does not scale."""

Pair = tuple[relax.Expr, relax.Expr]
Matrix = NDArray[np.float64]


def parts(emit: Emitter, pairs: relax.Expr) -> Pair:
    """The real and the imaginary parts."""
    real, imaginary = (emit(relax.op.take(pairs, relax.const(i, "int64"), axis=-1)) for i in range(2))
    return real, imaginary


def join(emit: Emitter, real: relax.Expr, imaginary: relax.Expr) -> relax.Expr:
    """A complex tensor from its real and imaginary parts."""
    return emit(relax.op.stack([real, imaginary], -1))


def _same(emit: Emitter, pairs: relax.Expr) -> relax.Expr:
    return pairs


def _complex(emit: Emitter, real: relax.Expr, imaginary: relax.Expr) -> relax.Expr:
    shape = emit.shape
    return join(emit, *(emit(relax.op.broadcast_to(part, shape)) for part in (real, imaginary)))


def _polar(emit: Emitter, length: relax.Expr, angle: relax.Expr) -> relax.Expr:
    cosine, sine = emit(relax.op.cos(angle)), emit(relax.op.sin(angle))
    return _complex(emit, *(emit(relax.op.multiply(length, part)) for part in (cosine, sine)))


def _to_copy(emit: Emitter, data: relax.Expr) -> relax.Expr:
    """Convert between real and complex numbers, or between widths of complex numbers."""
    wanted = _width(emit)
    if not emit.results[0].is_complex():
        return emit.cast(parts(emit, data)[0], wanted)
    if emit.node.args[0].meta["val"].is_complex():
        return emit.cast(data, wanted)
    real = emit.cast(data, wanted)
    return join(emit, real, emit(relax.op.zeros_like(real)))


def _width(emit: Emitter) -> str:
    """The dtype of the parts of the result."""
    return dtype_name(emit.results[0].real.dtype)


def _operand(emit: Emitter, place: int, value: Any) -> tuple[Any, Any]:
    """The real and imaginary part of an operand; the imaginary part of a real one is None."""
    width = _width(emit)
    if isinstance(value, complex):
        return relax.const(value.real, width), relax.const(value.imag, width)
    if is_number(value) or not emit.node.args[place].meta["val"].is_complex():
        return emit.cast(value, width), None
    return parts(emit, emit.cast(value, width))


def _multiply(emit: Emitter, left: Any, right: Any) -> relax.Expr:
    (a, b), (c, d) = _operand(emit, 0, left), _operand(emit, 1, right)

    def product(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return emit(relax.op.multiply(x, y))

    if b is None:
        return join(emit, product(a, c), product(a, d))
    if d is None:
        return join(emit, product(a, c), product(b, c))
    real = emit(relax.op.subtract(product(a, c), product(b, d)))
    return join(emit, real, emit(relax.op.add(product(a, d), product(b, c))))


def _added(sign: int) -> Any:
    def translate(emit: Emitter, left: Any, right: Any, *, alpha: Any) -> relax.Expr:
        (a, b), (c, d) = _operand(emit, 0, left), _operand(emit, 1, right)
        factor = relax.const(sign * alpha, dtype_of(a))
        shape = emit.shape

        def total(x: Any, y: Any) -> relax.Expr:
            scaled = None if y is None else emit(relax.op.multiply(y, factor))
            present = [one for one in (x, scaled) if one is not None]
            whole = present[0] if len(present) == 1 else emit(relax.op.add(*present))
            return emit(relax.op.broadcast_to(whole, shape))

        return join(emit, total(a, c), total(b, d))

    return translate


def _divide(emit: Emitter, left: Any, right: Any) -> relax.Expr:
    (a, b), (c, d) = _operand(emit, 0, left), _operand(emit, 1, right)
    if d is not None:
        raise UntranslatableError("division by a complex number")
    return join(emit, emit(relax.op.divide(a, c)), emit(relax.op.divide(b, c)))


def _negative(emit: Emitter, data: relax.Expr) -> relax.Expr:
    return relax.op.negative(data)


def _conjugate(emit: Emitter, pairs: relax.Expr) -> relax.Expr:
    return relax.op.multiply(pairs, relax.const(np.array([1, -1]), dtype_of(pairs)))


def _absolute(emit: Emitter, pairs: relax.Expr) -> relax.Expr:
    return relax.op.sqrt(emit(relax.op.sum(emit(relax.op.multiply(pairs, pairs)), -1)))


def _view(emit: Emitter, pairs: relax.Expr, sizes: list[int]) -> relax.Expr:
    return relax.op.reshape(pairs, (*emit.shape, 2))


def _permute(emit: Emitter, pairs: relax.Expr, axes: list[int]) -> relax.Expr:
    return relax.op.permute_dims(pairs, [*(axis_of(axis, len(axes)) for axis in axes), len(axes)])


def _unsqueeze(emit: Emitter, pairs: relax.Expr, axis: int) -> relax.Expr:
    return relax.op.reshape(pairs, (*emit.shape, 2))


def _expand(emit: Emitter, pairs: relax.Expr, sizes: list[int]) -> relax.Expr:
    return relax.op.broadcast_to(pairs, (*emit.shape, 2))


def _cat(emit: Emitter, tensors: list[relax.Expr], axis: int = 0) -> relax.Expr:
    return relax.op.concat(tensors, axis_of(axis, len(shape_of(tensors[0])) - 1))


def _slice(
    emit: Emitter, pairs: relax.Expr, axis: int, start: int | None, end: int | None, step: int
) -> relax.Expr:
    axis = axis_of(axis, len(shape_of(pairs)) - 1)
    size = fixed(shape_of(pairs), "a slice of a complex tensor")[axis]
    first, last, _ = slice(start, end).indices(size)
    return relax.op.strided_slice(pairs, [axis], [first], [last], [step])


def _select(emit: Emitter, pairs: relax.Expr, axis: int, place: int) -> relax.Expr:
    axis = axis_of(axis, len(shape_of(pairs)) - 1)
    size = fixed(shape_of(pairs), "an element of a complex tensor")[axis]
    return relax.op.take(pairs, relax.const(place % size, "int64"), axis=axis)


def _of_real(
    emit: Emitter, data: relax.Expr, axes: list[int], normalization: int, onesided: bool
) -> relax.Expr:
    """If ``onesided``, half of the last axis' frequencies: the others are their conjugates."""
    sizes = fixed(shape_of(data), "a Fourier transform")
    *others, last = (axis_of(axis, len(sizes)) for axis in axes)
    scale = _scale([sizes[axis] for axis in (*others, last)], normalization)
    roots = _roots(sizes[last], sizes[last] // 2 + 1 if onesided else sizes[last], forward=True)
    real, imaginary = (_along(emit, data, matrix * scale, last) for matrix in roots)
    return join(emit, *_transform(emit, (real, imaginary), others, 1.0, forward=True))


def _of_complex(
    emit: Emitter, pairs: relax.Expr, axes: list[int], normalization: int, forward: bool
) -> relax.Expr:
    sizes = fixed(shape_of(pairs), "a Fourier transform")[:-1]
    places = [axis_of(axis, len(sizes)) for axis in axes]
    scale = _scale([sizes[axis] for axis in places], normalization)
    return join(emit, *_transform(emit, parts(emit, pairs), places, scale, forward))


def _to_real(
    emit: Emitter, pairs: relax.Expr, axes: list[int], normalization: int, length: int
) -> relax.Expr:
    """Invert from half of the last axis' frequencies: all but the first and the middle one count twice."""
    sizes = fixed(shape_of(pairs), "a Fourier transform")[:-1]
    *others, last = (axis_of(axis, len(sizes)) for axis in axes)
    scale = _scale([*(sizes[axis] for axis in others), length], normalization)
    real, imaginary = _transform(emit, parts(emit, pairs), others, 1.0, forward=False)
    weights = np.full(sizes[last], 2 * scale)
    weights[0] = scale
    if length % 2 == 0:
        weights[length // 2 :] = scale
    cosine, sine = (matrix.T * weights[:, None] for matrix in _roots(length, sizes[last], forward=False))
    return emit(relax.op.subtract(_along(emit, real, cosine, last), _along(emit, imaginary, sine, last)))


def _transform(emit: Emitter, values: Pair, axes: list[int], scale: float, forward: bool) -> Pair:
    real, imaginary = values
    for axis in axes:
        size = int(shape_of(real)[axis])
        cosine, sine = (matrix * scale for matrix in _roots(size, size, forward))
        a, b = _along(emit, real, cosine, axis), _along(emit, imaginary, sine, axis)
        c, d = _along(emit, real, sine, axis), _along(emit, imaginary, cosine, axis)
        real, imaginary = emit(relax.op.subtract(a, b)), emit(relax.op.add(c, d))
        scale = 1.0
    return real, imaginary


def _along(emit: Emitter, data: relax.Expr, matrix: Matrix, axis: int) -> relax.Expr:
    """Multiply one axis by a matrix ``[old, new]``."""
    rank = len(shape_of(data))
    order = [*(place for place in range(rank) if place != axis), axis]
    back = sorted(range(rank), key=order.__getitem__)
    moved = emit(relax.op.permute_dims(data, order))
    product = emit(relax.op.matmul(moved, relax.const(matrix, dtype_of(data))))
    return emit(relax.op.permute_dims(product, back))


def _roots(length: int, kept: int, forward: bool) -> tuple[Matrix, Matrix]:
    """Cosines and sines as ``[position, frequency]``, for the first ``kept`` frequencies."""
    turns = np.outer(np.arange(length), np.arange(kept)) % length
    angles = 2 * np.pi / length * turns
    return np.cos(angles), np.sin(angles) * (-1 if forward else 1)


def _scale(sizes: list[int], normalization: int) -> float:
    count = float(np.prod(sizes))
    return {_BY_ROOT: count**-0.5, _BY_LENGTH: 1 / count}.get(normalization, 1.0)


RULES: Rules = rules_of(
    {"aten._neg_view.default": _negative}
    | {
        f"aten.{name}{OF_COMPLEX}": translate
        for name, translate in {
            "_conj.default": _conjugate,
            "_conj_physical.default": _conjugate,
            "_fft_c2c.default": _of_complex,
            "_fft_c2r.default": _to_real,
            "_fft_r2c.default": _of_real,
            "_to_copy.default": _to_copy,
            "abs.default": _absolute,
            "add.Tensor": _added(1),
            "alias.default": _same,
            "cat.default": _cat,
            "clone.default": _same,
            "complex.default": _complex,
            "div.Tensor": _divide,
            "expand.default": _expand,
            "mul.Scalar": _multiply,
            "mul.Tensor": _multiply,
            "neg.default": _negative,
            "permute.default": _permute,
            "polar.default": _polar,
            "select.int": _select,
            "slice.Tensor": _slice,
            "sub.Tensor": _added(-1),
            "unsqueeze.default": _unsqueeze,
            "view.default": _view,
            "view_as_complex.default": _same,
            "view_as_real.default": _same,
        }.items()
    }
)
