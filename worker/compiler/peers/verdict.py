"""Whether a library beats other runtimes, and what holds it back: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bessemer.contract.report import (
    BaselineResult,
    FunctionGap,
    FunctionTime,
    MachineCeiling,
    PeerAbsence,
    PeerVerdict,
)

REACHED_SHARE = 0.8
"""The share of the machine's ceiling that a well-scheduled function reaches."""
SHOWN_GAPS = 8
SAME_WITHIN = 0.03
"""A ratio this close to 1 decides nothing: repeated runs on one machine differ by as much."""


def judge(peers: Iterable[BaselineResult], absent: Sequence[PeerAbsence]) -> PeerVerdict:
    """Sort the runtimes that were measured by whether the library beats them.

    Args:
        peers: the runtimes that ran; an unsteady comparison decides nothing.
        absent: the runtimes that did not run.
    """
    known = list(peers)
    steady = [peer for peer in known if not peer.doubt]
    fastest = max(steady, key=lambda peer: peer.ratio, default=None)
    beaten = tuple(peer.name for peer in steady if peer.ratio < 1 - SAME_WITHIN)
    lost = tuple(peer.name for peer in steady if peer.ratio > 1 + SAME_WITHIN)
    return PeerVerdict(
        beats=beaten,
        loses_to=lost,
        undecided=tuple(peer.name for peer in known if peer.name not in (*beaten, *lost)),
        fastest=None if fastest is None else fastest.name,
        ratio=None if fastest is None else fastest.ratio,
        absent=tuple(absent),
    )


def find_gaps(
    functions: Iterable[FunctionTime], moved_bytes: Mapping[str, int], ceiling: MachineCeiling
) -> tuple[FunctionGap, ...]:
    """How far each function is from the machine's ceiling, the one with most to gain first.

    The ceiling is the roofline of Williams, Waterman and Patterson 2009: the products at the machine's rate
    of arithmetic, or each tensor once at the rate of its cache or memory, whichever takes longer.

    Args:
        functions: the profile, with the operations of their products.
        moved_bytes: the bytes of the tensors of one call, by function; others have no ceiling.
        ceiling: what the machine reaches.
    """
    gaps = (
        _gap(function, function.calls * moved_bytes[function.name], ceiling)
        for function in functions
        if function.name in moved_bytes and function.milliseconds > 0
    )
    return tuple(sorted(gaps, key=lambda gap: -gap.could_save_ms))


def could_save_ms(gaps: Iterable[FunctionGap]) -> float:
    """How much faster a run would be if every function reached ``REACHED_SHARE`` of its ceiling."""
    return sum(gap.could_save_ms for gap in gaps)


def _gap(function: FunctionTime, moved_bytes: int, ceiling: MachineCeiling) -> FunctionGap:
    in_cache = moved_bytes <= function.calls * ceiling.cache_bytes
    bytes_per_second = ceiling.cache_bytes_per_second if in_cache else ceiling.memory_bytes_per_second
    arithmetic_ms = 1e3 * function.flops / ceiling.flops_per_second
    memory_ms = 1e3 * moved_bytes / bytes_per_second
    least_ms = min(max(arithmetic_ms, memory_ms), function.milliseconds)
    return FunctionGap(
        name=function.name,
        calls=function.calls,
        milliseconds=function.milliseconds,
        share=function.share,
        ceiling_ms=least_ms,
        ceiling_share=least_ms / function.milliseconds,
        bound="arithmetic" if arithmetic_ms >= memory_ms else "memory",
        could_save_ms=max(0.0, function.milliseconds - least_ms / REACHED_SHARE),
    )
