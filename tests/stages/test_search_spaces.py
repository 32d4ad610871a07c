"""Search spaces by hand, from the request's names to the schedules in the module."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from space_samples import DIVIDE_ROWS, HESITATES, RAISES, divide_rows, installed
from test_tune_search import HOST, check_outputs, computing, run_tune

from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Schedules
from worker.candidates.client import CandidateClient
from worker.compiler.extensions import ExtensionError
from worker.compiler.schedules.default import follow_plans
from worker.compiler.spaces.registry import SpaceBook, make_space_book, register_intrinsics
from worker.compiler.spaces.space import Space
from worker.compiler.target import compile_target
from worker.compiler.tuning import proposals, search
from worker.compiler.tuning.session import open_database
from worker.compiler.values import Tuned
from worker.errors import JobError
from worker.job.warmup import import_everything


@pytest.fixture(scope="module", autouse=True)
def book() -> SpaceBook:
    """The built-in spaces and those of a package."""
    import_everything()
    with installed(DIVIDE_ROWS, HESITATES, RAISES) as point:
        found = make_space_book([point])
    register_intrinsics(found)
    return found


@pytest.fixture(autouse=True)
def use_book(book: SpaceBook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "space_book", lambda: book)


def asking(**spaces: str) -> TuneOptions:
    return TuneOptions(trials=4, spaces=spaces, force=True)


def test_a_users_space_is_searched_recorded_scripted_and_replayed(
    server: CandidateClient, tmp_path: Path
) -> None:
    tuned, _ = run_tune(server, tmp_path, asking(matmul="divide-rows"))

    (task,) = tuned.result.tasks
    assert (task.name, task.space, task.trials, task.kept) == ("matmul", "divide-rows", 4, True)
    assert task.found_ms is not None
    assert tuned.result.kept is Schedules.SEARCH
    assert tuned.records is not None
    records = open_database(tuned.records).get_all_tuning_records()
    assert len(records) == 4
    check_outputs(server, tuned.module, tmp_path)
    assert runs_as_script(tuned, tuned.records / "matmul.py")


def runs_as_script(tuned: Tuned, script: Path) -> bool:
    """Whether the script reproduces the module's schedule."""
    assert "sch.sample_perfect_tile(loop=" in script.read_text()
    scheduled = runpy.run_path(str(script))["scheduled"]()
    return computing(tuned.module, follow_plans(scheduled, compile_target(HOST).llvm)["main"].body) == 1


def test_without_force_the_library_has_it_only_where_it_is_faster(
    server: CandidateClient, tmp_path: Path
) -> None:
    options = TuneOptions(trials=2, spaces={"matmul": "divide-rows"})
    tuned, _ = run_tune(server, tmp_path, options)

    (task,) = tuned.result.tasks
    assert task.found_ms is not None
    assert task.default_ms is not None
    assert task.kept is (tuned.result.kept is Schedules.SEARCH)
    assert not task.kept or task.found_ms < task.default_ms


@pytest.mark.parametrize(
    ("spaces", "code", "message"),
    [
        ({"conv*": "course-matmul"}, ErrorCode.FUNCTION_UNKNOWN, "fused_matmul1_relu, matmul"),
        ({"matmul": "raises"}, ErrorCode.SPACE_FAILED, "KeyError: 'no such thing'"),
        ({"matmul": "dot-avx2"}, ErrorCode.SPACE_FAILED, "tensorize: The stmt"),
        ({"fused*": "course-micro-kernel-c"}, ErrorCode.SPACE_FAILED, "not multiples of 16 by 16 by 16"),
    ],
)
def test_an_unknown_space_is_refused_with_the_available_ones(
    spaces: dict[str, str], code: ErrorCode, message: str, server: CandidateClient, tmp_path: Path
) -> None:
    with pytest.raises(JobError) as caught:
        run_tune(server, tmp_path, asking(**spaces))
    assert caught.value.code is code
    assert message in caught.value.detail


@pytest.mark.sampled
@pytest.mark.parametrize("force", [True, False])
def test_a_pattern_skips_functions_that_its_space_does_not_fit(
    force: bool, server: CandidateClient, tmp_path: Path
) -> None:
    options = TuneOptions(trials=2, spaces={"*": "course-micro-kernel-c"}, force=force)
    tuned, _ = run_tune(server, tmp_path, options)

    tasks = {task.name: task for task in tuned.result.tasks}
    assert {name: (task.skipped, task.trials) for name, task in tasks.items()} == {
        "matmul": (False, 2),
        "fused_matmul1_relu": (True, 0),
    }
    assert "not multiples of 16 by 16 by 16" in str(tasks["fused_matmul1_relu"].refusal)
    assert tuned.result.skipped == 1
    assert tasks["matmul"].kept or not force
    check_outputs(server, tuned.module, tmp_path)


def test_a_pattern_whose_space_fits_no_function_is_refused(server: CandidateClient, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="not multiples of 1 by 8 by 2") as caught:
        run_tune(server, tmp_path, TuneOptions(trials=2, spaces={"*": "dot-avx2"}))
    assert caught.value.code is ErrorCode.SPACE_FAILED


def test_draws_that_raise_are_reported_beside_the_trials(server: CandidateClient, tmp_path: Path) -> None:
    tuned, _ = run_tune(server, tmp_path, TuneOptions(trials=2, spaces={"matmul": "hesitates"}, force=True))

    (task,) = tuned.result.tasks
    assert (task.trials, task.failed) == (2, 0)
    assert task.refused >= 1
    assert task.refusal == "KeyError: 'not now'"


def test_a_reserved_name_is_refused() -> None:
    reserved = Space("plans", divide_rows, "")
    with installed(reserved) as point, pytest.raises(ExtensionError, match="plans is a reserved name"):
        make_space_book([point])


def test_an_entry_point_may_provide_only_spaces_and_intrinsics() -> None:
    with (
        installed(divide_rows) as point,
        pytest.raises(ExtensionError, match=r"is not a tuple of .*Space or .*Intrinsic"),
    ):
        make_space_book([point])


def test_each_function_has_its_own_space(server: CandidateClient, tmp_path: Path) -> None:
    spaces = {"matmul": "course-micro-kernel-c", "*": "course-matmul"}
    tuned, _ = run_tune(server, tmp_path, TuneOptions(trials=2, spaces=spaces, force=True))

    assert {task.name: (task.space, task.trials, task.kept) for task in tuned.result.tasks} == {
        "matmul": ("course-micro-kernel-c", 1, True),
        "fused_matmul1_relu": ("course-matmul", 1, True),
    }
    assert tuned.records is not None
    assert 'tensor_intrin="course-update-16x16-c"' in (tuned.records / "matmul.py").read_text()
    check_outputs(server, tuned.module, tmp_path)


def test_a_longer_search_asks_the_cost_model_and_measures_nothing_twice(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "WARM_UP_SAMPLES", 8)
    options = TuneOptions(trials=10, spaces={"matmul": "course-matmul"}, force=True)
    tuned, _ = run_tune(server, tmp_path, options)

    assert tuned.records is not None
    lines = (tuned.records / "database_tuning_record.json").read_text().splitlines()
    traces = [json.dumps(json.loads(line)[1][0]) for line in lines]
    (task,) = tuned.result.tasks
    assert task.trials == 10
    assert len(set(traces)) == len(traces) == task.trials - task.failed
