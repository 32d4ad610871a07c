"""Known reasons why models are not verified."""

from __future__ import annotations

from benchmarks.architectures.outcomes import Outcome

NEAR = 3.0
"""A result counts as rounded if its distance from float64 is at most this multiple of torch's."""

UNKNOWN = "not explained yet"


def explain(outcome: Outcome) -> str:
    """Explain why a model is not verified."""
    if outcome.own_error is None or outcome.exact_error is None:
        return UNKNOWN
    if outcome.exact_error <= NEAR * outcome.own_error:
        return (
            f"rounding: from float64's result, torch's own float32 result is {outcome.own_error:.1e} "
            f"away, ours {outcome.exact_error:.1e}"
        )
    return UNKNOWN
