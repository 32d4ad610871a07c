"""Why models are not verified, where that is known."""

from __future__ import annotations

from benchmarks.architectures.outcomes import Outcome

NEAR = 3.0
"""A difference of at most so many times torch's own error is no error of the compiler's."""

KNOWN: dict[str, str] = {}
"""By model."""

UNKNOWN = "not explained yet"


def explain(outcome: Outcome) -> str:
    """Why a model is not verified."""
    if outcome.name in KNOWN:
        return KNOWN[outcome.name]
    if outcome.own_error is None or outcome.relative_error is None:
        return UNKNOWN
    if outcome.relative_error <= NEAR * outcome.own_error:
        return (
            f"rounding: torch's own float32 result is {outcome.own_error:.1e} from its float64 result, "
            f"ours {outcome.relative_error:.1e} from the former"
        )
    return UNKNOWN
