"""Widens a tolerance by the rounding of the reference itself."""

from __future__ import annotations

import numpy as np

from bessemer.contract.options import Tolerance
from worker.compiler.checking.compare import Array

ALLOWED = 4.0
"""Multiples of the reference's own rounding error: one for itself, three for the library."""

CEILING = 10.0
"""Multiples of the relative tolerance of the largest exact element; a larger difference is not rounding."""

HIGHEST_CEILING = 0.01
"""Share of the largest exact element, for types with a wide relative tolerance."""


def own_rounding(reference: Array, exact: Array, tolerance: Tolerance) -> float:
    """The maximum distance of a reference from the exact result, beyond the tolerance's relative part.

    Args:
        reference: the model's output in its own type; any shape.
        exact: the model's output in float64; the same shape.
        tolerance: the tolerance whose relative part is subtracted.

    Returns:
        0 if the relative part covers every element; infinity if an element is finite in only one array.
    """
    r, e = reference.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        alike = (r == e) | (np.isnan(r) & np.isnan(e))
        beyond = np.where(alike, 0, np.abs(r - e) - tolerance.relative * np.abs(e))
    return max(float(np.where(np.isnan(beyond), np.inf, beyond).max(initial=0)), 0.0)


def widen(tolerance: Tolerance, rounding: float, scale: float) -> Tolerance:
    """Widen a tolerance for a reference with a rounding error.

    The absolute part grows to ``ALLOWED`` times the error, unless that exceeds ``CEILING`` relative
    tolerances, or ``HIGHEST_CEILING``, of the largest element. Beyond that, the model is sensitive to
    more than rounding (a branch, a sort, an ``argmax``), and the float64 result cannot judge the library.

    Args:
        tolerance: the tolerance to widen.
        rounding: the error; see ``own_rounding``.
        scale: the largest magnitude of the exact result's finite elements.
    """
    absolute = ALLOWED * rounding
    ceiling = min(CEILING * tolerance.relative, HIGHEST_CEILING) * scale
    if absolute <= tolerance.absolute or absolute > ceiling:
        return tolerance
    return Tolerance(relative=tolerance.relative, absolute=absolute)


def scale_of(array: Array) -> float:
    """The largest magnitude of the finite elements; 0 if there are none."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max(initial=0))
