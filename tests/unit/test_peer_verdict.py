"""The verdict on other runtimes, and how far functions are from the machine's ceiling."""

from typing import Any

import pytest
from report_samples import baseline, peer_comparison

from bessemer.contract.report import (
    BaselineResult,
    FunctionTime,
    MachineCeiling,
    PeerAbsence,
    PeerVerdict,
)
from bessemer.figures import words
from worker.compiler.peers.verdict import could_save_ms, find_gaps, judge

EAGER, ORT = "torch-eager", "onnxruntime"
CEILING = MachineCeiling(
    flops_per_second=1e11, memory_bytes_per_second=1e10, cache_bytes_per_second=1e11, cache_bytes=1 << 20
)


def unsteady(name: str) -> BaselineResult:
    return baseline(name, 5.0, 0.5).model_copy(update={"unsteady": "it stalled"})


@pytest.mark.parametrize(
    ("peers", "expected", "wins"),
    [
        ([], {"beats": (), "loses_to": (), "undecided": (), "fastest": None, "ratio": None}, False),
        (
            [baseline(EAGER, 9.0, 0.5), baseline(ORT, 5.0, 0.9)],
            {"beats": (EAGER, ORT), "loses_to": (), "undecided": (), "fastest": ORT, "ratio": 0.9},
            True,
        ),
        (
            [baseline(EAGER, 9.0, 0.5), baseline(ORT, 5.0, 1.2)],
            {"beats": (EAGER,), "loses_to": (ORT,), "undecided": (), "fastest": ORT, "ratio": 1.2},
            False,
        ),
        (
            [baseline(EAGER, 9.0, 0.5), baseline(ORT, 5.0, 1.02)],
            {"beats": (EAGER,), "loses_to": (), "undecided": (ORT,), "fastest": ORT, "ratio": 1.02},
            False,
        ),
        (
            [baseline(EAGER, 9.0, 0.5), unsteady(ORT)],
            {"beats": (EAGER,), "loses_to": (), "undecided": (ORT,), "fastest": EAGER, "ratio": 0.5},
            False,
        ),
    ],
)
def test_a_library_wins_if_it_beats_every_runtime_steadily(
    peers: list[BaselineResult], expected: dict[str, Any], wins: bool
) -> None:
    absent = (PeerAbsence(name="openvino", reason="not installed"),)
    verdict = judge(peers, absent)
    assert verdict == PeerVerdict(**expected, absent=absent)
    assert verdict.wins is wins


def function(name: str, milliseconds: float, flops: int, calls: int = 1) -> FunctionTime:
    return FunctionTime(name=name, calls=calls, milliseconds=milliseconds, share=0.5, flops=flops)


@pytest.mark.parametrize(
    ("measured", "moved", "ceiling_ms", "bound", "saves_ms"),
    [
        (function("f", 4.0, 100_000_000), 1 << 10, 1.0, "arithmetic", 2.75),
        (function("f", 1.1, 100_000_000), 1 << 10, 1.0, "arithmetic", 0.0),
        (function("f", 0.5, 100_000_000), 1 << 10, 0.5, "arithmetic", 0.0),
        (function("f", 4.0, 0), 10_000_000, 1.0, "memory", 2.75),
        (function("f", 4.0, 0), 1_000_000, 0.01, "memory", 3.9875),
        (function("f", 4.0, 0, calls=2), 1_000_000, 0.02, "memory", 3.975),
    ],
)
def test_a_function_s_ceiling_is_its_slower_work_at_the_machine_s_rate(
    measured: FunctionTime, moved: int, ceiling_ms: float, bound: str, saves_ms: float
) -> None:
    (gap,) = find_gaps([measured], {"f": moved}, CEILING)
    assert (gap.ceiling_ms, gap.could_save_ms) == pytest.approx((ceiling_ms, saves_ms))
    assert gap.bound == bound
    assert gap.ceiling_share == pytest.approx(ceiling_ms / measured.milliseconds)


def test_the_function_with_most_to_gain_comes_first_and_unknown_ones_have_no_ceiling() -> None:
    functions = [
        function("small", 1.0, 10_000_000),
        function("large", 9.0, 10_000_000),
        function("runtime", 5.0, 0),
        function("idle", 0.0, 0),
    ]
    gaps = find_gaps(functions, {"small": 8, "large": 8, "idle": 8}, CEILING)
    assert [gap.name for gap in gaps] == ["large", "small"]
    assert could_save_ms(gaps) == pytest.approx(8.875 + 0.875)


def verdict(**changes: Any) -> PeerVerdict:
    empty = PeerVerdict(beats=(), loses_to=(), undecided=(), fastest=None, ratio=None)
    return empty.model_copy(update=changes)


@pytest.mark.parametrize(
    ("found", "headline"),
    [
        (verdict(beats=(EAGER, ORT)), "Faster than every runtime compared"),
        (verdict(beats=(EAGER,)), "Faster than the other runtime"),
        (verdict(beats=(EAGER,), loses_to=(ORT, "openvino")), "Slower than ONNX Runtime and OpenVINO"),
        (verdict(beats=(EAGER,), undecided=(ORT,)), "Faster than torch eager"),
        (verdict(undecided=(ORT,)), "Not clearly faster or slower"),
        (verdict(), "Nothing to compare with"),
    ],
)
def test_the_headline_says_whether_the_library_is_faster(found: PeerVerdict, headline: str) -> None:
    assert words.peer_headline(found) == headline


def test_the_outlook_is_a_share_of_the_latency() -> None:
    assert "take 4.20 ms less, 21.0 % of the latency" in words.outlook(peer_comparison(), 20.0)
