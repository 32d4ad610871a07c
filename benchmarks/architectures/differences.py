"""Differences in units of the output's largest element: a model's scale is its own."""

from __future__ import annotations

import numpy as np

from bessemer.contract.request import Tolerance
from worker.pipeline.compare import Array, compare


def scaled(tolerance: Tolerance, reference: Array) -> Tolerance:
    """A tolerance whose absolute part counts in units of the reference's largest element."""
    return Tolerance(relative=tolerance.relative, absolute=tolerance.absolute * scale_of(reference))


def scale_of(reference: Array) -> float:
    """The largest magnitude of the finite elements; 0 of none."""
    finite = np.abs(reference[np.isfinite(reference)].astype(np.float64))
    return float(finite.max(initial=0))


def share_of_scale(output: Array, reference: Array) -> float:
    """The largest difference from the reference as a share of its largest element."""
    found = compare("output", output, reference, Tolerance(relative=0, absolute=0))
    return found.max_absolute_error / (scale_of(reference) or 1.0)
