"""Why models are not verified, where that is known."""

from __future__ import annotations

from benchmarks.architectures.outcomes import Outcome

NEAR = 3.0
"""A result that is at most so many times as far from float64's as torch's own is as good as any."""

KNOWN: dict[str, str] = {}
"""By model."""

UNKNOWN = "not explained yet"


def explain(outcome: Outcome) -> str:
    """Why a model is not verified."""
    if outcome.name in KNOWN:
        return KNOWN[outcome.name]
    if outcome.own_error is None or outcome.exact_error is None:
        return UNKNOWN
    if outcome.exact_error <= NEAR * outcome.own_error:
        return (
            f"rounding: from float64's result, torch's own float32 result is {outcome.own_error:.1e} "
            f"away, ours {outcome.exact_error:.1e}"
        )
    return UNKNOWN
