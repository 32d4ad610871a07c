"""Sides of the model benchmark: processes that take turns."""

import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models.alternation import largest_error, measure_sides
from benchmarks.models.results import SideResult, State
from benchmarks.models.runtimes import Runtime, Subject
from benchmarks.models.side import Loaded, MissingError, SideFailedError, SideProcess
from examples.models import EXAMPLES

ONES = (np.ones(4, np.float32),)


def spin(_subject: Subject | None = None) -> Loaded:
    def call() -> None:
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass

    return Loaded(call, lambda _: ONES)


def missing(_subject: Subject) -> Loaded:
    raise MissingError("no module named 'peer'")


def broken(_subject: Subject) -> Loaded:
    raise ValueError("no such operator")


def wrong(_subject: Subject) -> Loaded:
    return Loaded(lambda: None, lambda _: (np.zeros(4, np.float32),))


def results(tmp_path: Path, *runtimes: Runtime) -> list[SideResult]:
    subject = Subject(EXAMPLES["mlp"], tmp_path, 1)
    return measure_sides(subject, runtimes, ONES, 3, tmp_path / "log.txt", lambda: None)


def test_correct_sides_take_turns_and_others_report_why_not(tmp_path: Path) -> None:
    ours, theirs, absent, failed, differing = results(
        tmp_path,
        Runtime("ours", "numpy", spin),
        Runtime("theirs", "numpy", spin),
        Runtime("absent", "no-such-package", missing),
        Runtime("failed", "numpy", broken),
        Runtime("differing", "numpy", wrong),
    )
    assert (ours.rounds, theirs.rounds, ours.ratio) == (3, 3, None)
    assert theirs.ratio is not None
    assert theirs.ratio.p10 <= theirs.ratio.median <= theirs.ratio.p90
    assert (absent.state, absent.note, absent.version) == (State.MISSING, "no module named 'peer'", None)
    assert (failed.state, failed.note) == (State.FAILED, "ValueError: no such operator")
    assert (differing.state, differing.latency) == (State.DIFFERS, None)


def test_a_side_burns_no_time_between_its_turns(tmp_path: Path) -> None:
    side = SideProcess.start(spin, tmp_path / "log.txt")
    try:
        assert len(side.time(3)) == 3
        assert side.busy_threads() == 1
        threads = Path(f"/proc/{side.process.pid}/task").glob("*/stat")
        assert {path.read_text().rpartition(")")[2].split()[0] for path in threads} == {"T"}
    finally:
        side.close()


def test_a_side_whose_process_ends_is_a_failure(tmp_path: Path) -> None:
    def leave() -> Loaded:
        raise SystemExit(3)

    with pytest.raises(SideFailedError, match="its process ended"):
        SideProcess.start(leave, tmp_path / "log.txt")


def test_an_output_of_another_shape_does_not_match() -> None:
    assert largest_error((np.ones(3),), ONES) == float("inf")
    assert largest_error((np.full(4, 1.5, np.float32),), ONES) == pytest.approx(0.5)
