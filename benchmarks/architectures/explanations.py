"""Known reasons why models are not verified."""

from __future__ import annotations

from benchmarks.architectures.outcomes import Outcome

NEAR = 3.0
"""A result counts as rounded if its distance from float64 is at most this multiple of torch's."""

_UNION = "an argument may be a tensor or an object of the package: compile the trace or the exported program"
KNOWN: dict[str, str] = {
    "kornia/Canny": "a loop until nothing changes: compile the exported program",
    "kornia/RgbToLab": "the script asks for a value's type: compile the trace or the exported program",
    "torch_geometric/EdgeCNN": _UNION,
    "torch_geometric/GIN": _UNION,
    "torch_geometric/GraphSAGE": _UNION,
}
"""By model."""

UNKNOWN = "not explained yet"


def explain(outcome: Outcome) -> str:
    """Explain why a model is not verified."""
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
