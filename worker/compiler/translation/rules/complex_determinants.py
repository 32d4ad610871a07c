"""Determinants of complex matrices, by Gaussian elimination on real and imaginary parts.

::

    copy the matrix; phase = 1; size = 0
    for k in n                      columns
        p = the row from k on with the largest |a[p, k]|; exchange rows p and k, which turns the phase by -1
        phase *= a[k, k] / |a[k, k]|; size += log |a[k, k]|
        for i in k + 1 .. n         a[i, :] -= a[i, k] / a[k, k] * a[k, :]
    determinant = phase * exp(size)

Source: G. Golub and C. Van Loan, "Matrix Computations", 4th ed., algorithm 3.4.1.
"""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, tirx
from tvm.script.ir_builder import tirx as T

from worker.compiler.translation.batch_loops import (
    Local,
    Result,
    View,
    copy,
    map_batch,
    matrix_sizes,
    swap,
    when,
)
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import OF_COMPLEX, ComplexDecomposition, Parts, Rule, Rules


def _eliminated(emit: Emitter, real: relax.Expr, imaginary: relax.Expr) -> tuple[relax.Expr, ...]:
    dtype = dtype_of(real)
    copies = [Result(matrix_sizes(real), dtype)] * 2
    scalars = [Result((), dtype)] * 3
    return tuple(map_batch(emit, _eliminate, [real, imaginary], [*scalars, *copies])[:3])


def _eliminate(
    real: View, imaginary: View, phase_real: View, phase_imaginary: View, size: View, a: View, b: View
) -> None:
    """Work on the copies ``a`` and ``b`` of the parts."""
    copy(real, a)
    copy(imaginary, b)
    phase_real[()], phase_imaginary[()], size[()] = 1, 0, 0
    n = real.sizes[0]
    with T.serial(0, n) as k:
        pivot = _largest(a, b, k, n)
        with when(pivot.value != k):
            phase_real[()], phase_imaginary[()] = -phase_real[()], -phase_imaginary[()]
            with T.serial(0, n) as c:
                for part in (a, b):
                    swap((part, (k, c)), (part, (pivot.value, c)))
        square = Local(_square(a, b, k, k), a.dtype)
        length = Local(tirx.sqrt(square.value), a.dtype)
        size[()] = size[()] + tirx.log(length.value)
        with when(square.value > tirx.const(0, a.dtype)):
            turned = _times((phase_real[()], phase_imaginary[()]), (a[k, k], b[k, k]))
            first = Local(turned[0] / length.value, a.dtype)
            phase_imaginary[()] = turned[1] / length.value
            phase_real[()] = first.value
            with T.serial(0, n - 1 - k) as below:
                i = k + 1 + below
                quotient = _times((a[i, k], b[i, k]), (a[k, k], -b[k, k]))
                factor = [Local(part / square.value, a.dtype) for part in quotient]
                with T.serial(0, n) as c:
                    less = _times((factor[0].value, factor[1].value), (a[k, c], b[k, c]))
                    a[i, c] = a[i, c] - less[0]
                    b[i, c] = b[i, c] - less[1]


def _largest(a: View, b: View, k: Any, n: int) -> Local:
    place, largest = Local(k, "int64"), Local(_square(a, b, k, k), a.dtype)
    with T.serial(0, n - 1 - k) as below:
        i = k + 1 + below
        with when(_square(a, b, i, k) > largest.value):
            largest.set(_square(a, b, i, k))
            place.set(i)
    return place


def _square(a: View, b: View, i: Any, k: Any) -> Any:
    return a[i, k] * a[i, k] + b[i, k] * b[i, k]


def _times(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] * other[0] - one[1] * other[1], one[0] * other[1] + one[1] * other[0]


def _define() -> torch.library.Library:
    library = torch.library.Library("bessemer", "FRAGMENT")
    library.define("complex_eliminated(Tensor real, Tensor imaginary) -> (Tensor, Tensor, Tensor)")

    @torch.library.register_fake("bessemer::complex_eliminated", lib=library)
    def _(real: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(real.new_empty(real.shape[:-2]) for _ in range(3))

    return library


_LIBRARY = _define()
"""Keeps the operator defined: torch removes it with its library."""


def _determinant(matrix: Parts) -> tuple[Any, ...]:
    """The factors, which only gradients read, stay the matrix."""
    phase_real, phase_imaginary, size = torch.ops.bessemer.complex_eliminated(*matrix)
    scale = torch.exp(size)
    return Parts(phase_real * scale, phase_imaginary * scale), matrix, _pivots(matrix)


def _log_determinant(matrix: Parts) -> tuple[Any, ...]:
    """The sign of a singular matrix is 0."""
    phase_real, phase_imaginary, size = torch.ops.bessemer.complex_eliminated(*matrix)
    is_regular = ~torch.isinf(size)
    return Parts(phase_real * is_regular, phase_imaginary * is_regular), size, matrix, _pivots(matrix)


def _pivots(matrix: Parts) -> torch.Tensor:
    return torch.zeros(matrix.real.shape[:-1], dtype=torch.int32)


RULES: Rules = (
    Rule("bessemer.complex_eliminated.default", _eliminated),
    ComplexDecomposition(f"aten._linalg_det.default{OF_COMPLEX}", _determinant),
    ComplexDecomposition(f"aten._linalg_slogdet.default{OF_COMPLEX}", _log_determinant),
)
