"""How far a correct library may be from its reference, which is rounded too."""

from __future__ import annotations

import numpy as np

from bessemer.contract.options import Tolerance
from worker.compiler.checking.compare import Array

ALLOWED = 4.0
"""In units of the reference's distance from the exact result: its own, and three for the library."""

CEILING = 10.0
"""In units of the relative tolerance, of the largest exact element: beyond it a difference is no rounding."""

HIGHEST_CEILING = 0.01
"""Of the largest exact element, for types whose relative tolerance is wide."""


def own_rounding(reference: Array, exact: Array, tolerance: Tolerance) -> float:
    """How far a reference lies from the exact result beyond the tolerance's relative part, at most.

    Args:
        reference: what the model computed in its own type; any shape.
        exact: what it computes in float64; the same shape.
        tolerance: whose relative part is allowed anyway.

    Returns:
        0 where the relative part covers every element; infinity where one is finite in one of both only.
    """
    r, e = reference.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        alike = (r == e) | (np.isnan(r) & np.isnan(e))
        beyond = np.where(alike, 0, np.abs(r - e) - tolerance.relative * np.abs(e))
    return max(float(np.where(np.isnan(beyond), np.inf, beyond).max(initial=0)), 0.0)


def widen(tolerance: Tolerance, rounding: float, scale: float) -> Tolerance:
    """The tolerance for a reference that is itself so far from the exact result.

    The absolute part grows to ``ALLOWED`` times that distance, unless that is more than ``CEILING`` relative
    tolerances, or ``HIGHEST_CEILING``, of the largest element: then the model is sensitive to more than
    rounding (a branch, a sort, an ``argmax``), and float64 says nothing about the library.

    Args:
        tolerance: in force without.
        rounding: see ``own_rounding``.
        scale: the largest magnitude of the exact result's finite elements.
    """
    absolute = ALLOWED * rounding
    ceiling = min(CEILING * tolerance.relative, HIGHEST_CEILING) * scale
    if absolute <= tolerance.absolute or absolute > ceiling:
        return tolerance
    return Tolerance(relative=tolerance.relative, absolute=absolute)


def scale_of(array: Array) -> float:
    """The largest magnitude of the finite elements; 0 of none."""
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max(initial=0))
