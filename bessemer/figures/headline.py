"""How fast a library is, in one sentence."""

from dataclasses import dataclass

from bessemer.contract.report import BaselineResult
from bessemer.figures import words

MAIN_BASELINE = "torch-eager"


@dataclass(frozen=True)
class Headline:
    """The library compared with the most important baseline; no ratio if the comparison is unsteady."""

    baseline: BaselineResult | None
    words: str
    details: str
    wins: bool


def make_headline(baselines: tuple[BaselineResult, ...]) -> Headline:
    """Compare with torch eager if it was measured, else with the first baseline."""
    ordered = sorted(baselines, key=lambda peer: peer.name != MAIN_BASELINE)
    if not ordered:
        return Headline(None, "", "", wins=False)
    peer = ordered[0]
    name = words.baseline_name(peer.name)
    if peer.doubt:
        reason = words.sentence(peer.doubt)
        details = (
            f"{reason} Other work on the machine causes this: measure again when it is idle, with the option "
            "cache set to false."
        )
        return Headline(peer, f"Not compared with {name}", details, wins=False)
    threads = "1 thread" if peer.threads == 1 else f"{peer.threads} threads"
    beside = f"On the same inputs, {name} takes {words.duration(peer.latency.p50_ms)} with {threads}."
    spread = words.ratio_range(peer)
    most = f" In four of five rounds, the library was {spread} as fast." if spread else ""
    wins = peer.ratio < 1 - words.SAME_WITHIN
    return Headline(peer, f"{words.ratio_words(peer.ratio)} {name}", beside + most, wins)
