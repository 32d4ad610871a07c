"""Differences relative to the output's largest element."""

from __future__ import annotations

from collections.abc import Sequence

from bessemer.contract.options import Tolerance
from worker.compiler.checking.compare import Array, compare, scale_of


def share_of_scale(output: Array, reference: Array) -> float:
    """The largest difference from the reference as a share of its largest element."""
    found = compare("output", output, reference, Tolerance(relative=0, absolute=0))
    return found.max_absolute_error / (scale_of(reference) or 1.0)


def distance(outputs: Sequence[Array], references: Sequence[Array]) -> float:
    """The largest share over all outputs, in the references' types."""
    return max(
        share_of_scale(output.astype(reference.dtype), reference)
        for output, reference in zip(outputs, references, strict=True)
    )
