from collections.abc import Iterator

import pytest

from bessemer.contract.report import FunctionTime
from worker.candidates.client import Timeouts
from worker.candidates.library import RUNTIME, profile_of
from worker.measure.statistics import choose_profile, total_ms


def test_one_interrupted_call_does_not_lengthen_a_short_function() -> None:
    intervals = {
        "short": [1e-6, 1e-6, 1.0, 1e-6, 1e-6, 1e-6],
        "long": [1e-3, 1e-3, 0.5e-3],
        RUNTIME: [1e-6, 1e-6, 1e-6],
    }

    functions = {entry.name: entry for entry in profile_of(intervals, runs=3, run_seconds=1.5e-3)}

    assert functions["short"].calls == 2
    assert functions["short"].milliseconds == pytest.approx(0, abs=1e-9)
    assert functions["long"].milliseconds == pytest.approx(0.999)
    assert functions["long"].best_milliseconds == pytest.approx(0.499)
    assert functions[RUNTIME].milliseconds == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("run_seconds", "milliseconds"),
    [(1.02e-3, 0.021), (1.5e-3, 0.05), (0.9e-3, 0)],
    ids=["the rest of a run", "at most what was observed", "never less than nothing"],
)
def test_the_runtime_has_what_the_kernels_leave(run_seconds: float, milliseconds: float) -> None:
    intervals = {"kernel": [1e-3], RUNTIME: [1e-6, 49e-6]}

    functions = {entry.name: entry for entry in profile_of(intervals, runs=1, run_seconds=run_seconds)}

    assert functions[RUNTIME].milliseconds == pytest.approx(milliseconds)


@pytest.mark.parametrize(
    ("totals_ms", "chosen_ms", "taken"),
    [
        ([0.21, 3.9], 0.21, 1),
        ([3.9, 0.16, 0.2], 0.16, 2),
        ([3.9, 0.3, 1.0], 0.3, 3),
        ([0.01, 0.39], 0.39, 2),
    ],
    ids=["quiet", "busy at first", "busy all along", "below and above"],
)
def test_functions_are_timed_until_they_cover_the_models_time(
    totals_ms: list[float], chosen_ms: float, taken: int
) -> None:
    asked = []

    def profiles() -> Iterator[tuple[FunctionTime, ...]]:
        for total in totals_ms:
            asked.append(total)
            half = FunctionTime(name="half", calls=1, milliseconds=total / 2, share=0.5)
            yield (half, half)

    assert total_ms(choose_profile(profiles(), run_ms=0.201)) == pytest.approx(chosen_ms)
    assert len(asked) == taken


@pytest.mark.parametrize(
    ("runs", "run_seconds", "expected"),
    [(1, None, 300.0), (0, 0.5, 30.0), (10, 0.5, 130.0), (500, 1e-5, 30.1)],
)
def test_a_timeout_grows_with_the_expected_time(
    runs: int, run_seconds: float | None, expected: float
) -> None:
    assert Timeouts().for_runs(runs, run_seconds) == pytest.approx(expected)
