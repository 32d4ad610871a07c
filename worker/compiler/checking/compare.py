"""Compares an output with its reference, and widens the tolerance by the reference's own rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bessemer.contract.options import Tolerance
from bessemer.contract.report import OutputComparison
from bessemer.contract.tensor import DType

Array = NDArray[Any]


ALLOWED = 4.0
"""Multiples of the reference's own rounding error: one for itself, three for the library."""

SMALLEST = 0.1
"""The share of an output's elements, those nearest 0, whose errors show the rounding of elements near 0."""

CEILING = 10.0
"""Multiples of the relative tolerance of the largest exact element; a larger difference is not rounding."""

HIGHEST_CEILING = 0.01
"""Share of the largest exact element, for types with a wide relative tolerance."""

BFLOAT16_CEILING = 0.08
"""The same share for bfloat16: about ten distances between neighboring numbers, as 0.01 is for float16."""

AS_EXACT = 2.0
"""Multiples of the reference's root mean square error that a library as exact as it may have."""


class _Worst(NamedTuple):
    place: tuple[int, ...] = ()
    value: float = 0.0
    reference: float = 0.0


def compare(name: str, actual: Array, reference: Array, tolerance: Tolerance) -> OutputComparison:
    """Compare an output with its reference: ``|x - r| <= absolute + relative * |r|`` for every element.

    A NaN equals a NaN at the same place, and an infinity equals the same infinity; from any other value they
    are infinitely far. The worst element is the furthest outside, or nearest to, its bound. If none differs
    and none is finite in both arrays, its index is ``()`` and its values are 0. The relative error covers
    elements whose reference is not 0.

    Args:
        name: the output's name.
        actual: the library's output; any shape, any dtype of the contract.
        reference: the model's output; the same shape and dtype.
        tolerance: the allowed distance of an element from its reference.

    Raises:
        ValueError: the shapes or the dtypes differ; the message names both.
    """
    if actual.shape != reference.shape or actual.dtype != reference.dtype:
        raise ValueError(f"output '{name}' is {_kind(actual)}, the model's is {_kind(reference)}")
    x, r = _widened(actual), _widened(reference)
    with np.errstate(all="ignore"):
        errors = _errors(x, r)
        excess = _excess(errors, r, tolerance)
        worst = _worst(x, r, excess)
        relative = _max_relative(errors, r)
    return OutputComparison(
        name=name,
        shape=reference.shape,
        dtype=DType(str(reference.dtype)),
        tolerance=tolerance,
        max_absolute_error=float(errors.max(initial=0)),
        max_relative_error=relative,
        worst_index=worst.place,
        worst_value=worst.value,
        worst_reference=worst.reference,
        mismatches=int(np.count_nonzero(excess > 1)),
        elements=reference.size,
    )


def _kind(array: Array) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _widened(array: Array) -> Array:
    """Widen so that differences are exact enough: x86's long double holds every 64-bit integer."""
    return array.astype(np.longdouble if array.dtype.kind in "iu" else np.float64)


def _errors(x: Array, r: Array) -> Array:
    equal = (x == r) | (np.isnan(x) & np.isnan(r))
    comparable = np.isfinite(x) & np.isfinite(r)
    return np.where(equal, 0, np.where(comparable, np.abs(x - r), np.inf))


def _excess(errors: Array, r: Array, tolerance: Tolerance) -> Array:
    """Each error in units of its own bound: above 1 the element is a mismatch."""
    bound = tolerance.absolute + tolerance.relative * np.abs(r)
    decided = (errors == 0) | np.isinf(errors)
    return np.where(decided, errors, errors / bound)


def _worst(x: Array, r: Array, excess: Array) -> _Worst:
    error = np.where(np.isfinite(x) & np.isfinite(r), excess, np.where(excess > 0, excess, -1))
    if error.size == 0 or error.max() < 0:
        return _Worst()
    index = np.unravel_index(int(error.argmax()), error.shape)
    return _Worst(tuple(int(i) for i in index), float(x[index]), float(r[index]))


def _max_relative(errors: Array, r: Array) -> float:
    where = (r != 0) & (errors > 0)
    if not where.any():
        return 0.0
    return float((errors[where] / np.abs(r[where])).max())


def own_rounding(reference: Array, exact: Array, tolerance: Tolerance) -> float:
    """How far a reference is from the exact result where the tolerance's relative part does not allow for it.

    That is the larger of two distances: the largest beyond the relative part, and the largest of the
    ``SMALLEST`` elements. Few elements may be so near 0 that their relative part is too small, and the
    reference may happen to be exact there.

    Args:
        reference: the model's output in its own type; any shape.
        exact: the model's output in float64; the same shape.
        tolerance: the tolerance whose relative part is subtracted.

    Returns:
        0 if the reference is exact; infinity if an element is finite in only one array.
    """
    r, e = reference.astype(np.float64).ravel(), exact.astype(np.float64).ravel()
    with np.errstate(all="ignore"):
        alike = (r == e) | (np.isnan(r) & np.isnan(e))
        errors = np.where(alike, 0, np.abs(r - e))
        beyond = np.where(alike, 0, errors - tolerance.relative * np.abs(e))
    if np.isnan(beyond).any():
        return float("inf")
    count = int(SMALLEST * e.size)
    near_zero = errors[np.argpartition(np.abs(e), count)[:count]] if count else errors[:0]
    return max(float(beyond.max(initial=0)), float(near_zero.max(initial=0)))


def highest_ceiling(dtype: str) -> float:
    """The share of the largest exact element that rounding in this type may reach."""
    return BFLOAT16_CEILING if dtype == "bfloat16" else HIGHEST_CEILING


def is_as_exact(output: Array, reference: Array, exact: Array) -> bool:
    """Whether an output's errors are about as large as its reference's.

    Args:
        output: the library's output; the reference's shape.
        reference: the model's output in its own type.
        exact: the model's output in float64.
    """
    is_finite = np.isfinite(exact)
    ours, theirs = (_mean_square(each.astype(np.float64) - exact, is_finite) for each in (output, reference))
    return ours <= AS_EXACT**2 * theirs


def _mean_square(errors: Array, where: Array) -> float:
    return float(np.square(errors[where]).mean()) if where.any() else 0.0


def widen(tolerance: Tolerance, rounding: float, scale: float, highest: float = HIGHEST_CEILING) -> Tolerance:
    """Widen a tolerance for a reference with a rounding error.

    The absolute part grows to ``ALLOWED`` times the error, unless that exceeds ``CEILING`` relative
    tolerances, or the share ``highest``, of the largest element. Beyond that, the model is sensitive to
    more than rounding (a branch, a sort, an ``argmax``), and the float64 result cannot judge the library.

    Args:
        tolerance: the tolerance to widen.
        rounding: the error; see ``own_rounding``.
        scale: the largest magnitude of the exact result's finite elements.
        highest: a share of the scale; see ``highest_ceiling``.
    """
    absolute = ALLOWED * rounding
    ceiling = min(CEILING * tolerance.relative, highest) * scale
    if absolute <= tolerance.absolute or absolute > ceiling:
        return tolerance
    return Tolerance(relative=tolerance.relative, absolute=absolute)


def scale_of(array: Array) -> float:
    """The largest magnitude of the finite elements; 0 if there are none."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max(initial=0))
