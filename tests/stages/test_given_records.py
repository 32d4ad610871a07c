"""Tuning records that a request gives: the search measures what they propose."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_metaschedule import trials_of
from test_tune_search import check_outputs, run_tune

from bessemer.bundle.manifest import RECORD_EXTENSIONS
from bessemer.contract.options import REPLAY_TRACE, SearchMethod, TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import LoadedExtension
from worker.candidates.client import CandidateClient
from worker.compiler.tuning.given_records import read_records
from worker.compiler.tuning.record_marks import write_marks
from worker.errors import JobError

pytestmark = pytest.mark.usefixtures("warm")

GIVEN = ("a" * 64, "b" * 64)
WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, server: CandidateClient) -> tuple[Path, ...]:
    """The files of a search of both functions, by MetaSchedule."""
    folder = tmp_path_factory.mktemp("earlier")
    options = TuneOptions(trials=24, search=SearchMethod.METASCHEDULE, strategy=REPLAY_TRACE)
    tuned, _ = run_tune(server, folder, options)
    assert all(task.trials > task.failed for task in tuned.result.tasks)
    return folder / "records" / RECORDS, folder / "records" / WORKLOADS


@pytest.mark.slow
def test_the_records_of_each_function_are_measured_first(
    records: tuple[Path, ...], server: CandidateClient, tmp_path: Path
) -> None:
    count = len(records[0].read_text().splitlines())
    options = TuneOptions(trials=20, max_trials_per_task=10, records=GIVEN)
    tuned, _ = run_tune(server, tmp_path, options, records=records)

    assert (tuned.result.records, tuned.result.unused_records) == (count, 0)
    assert [spaces["records"] for spaces in trials_of(tuned).values()] == [8, 8]
    assert tuned.result.trials == 20
    assert tuned.records is not None
    written = (tuned.records / RECORDS).read_text().splitlines()
    assert len(written) == 20 - sum(task.failed for task in tuned.result.tasks)
    check_outputs(server, tuned.module, tmp_path)


def test_records_come_before_the_space_that_a_request_names(
    records: tuple[Path, ...], server: CandidateClient, tmp_path: Path
) -> None:
    options = TuneOptions(trials=10, spaces={"matmul": "course-matmul"}, records=GIVEN)
    tuned, _ = run_tune(server, tmp_path, options, records=records)
    assert trials_of(tuned) == {"matmul": {"records": 8, "course-matmul": 2}}


def test_records_that_fit_no_function_are_counted(
    records: tuple[Path, ...], server: CandidateClient, tmp_path: Path
) -> None:
    count = len(records[0].read_text().splitlines())
    tuned, _ = run_tune(server, tmp_path, TuneOptions(trials=2, records=GIVEN), rows=1, records=records)

    assert (tuned.result.records, tuned.result.unused_records) == (count, count)
    assert all("records" not in spaces for spaces in trials_of(tuned).values())


EXTENSION = LoadedExtension(digest="e" * 64, name="my_spaces.py", defines={})
OTHER = LoadedExtension(digest="f" * 64, name="other.py", defines={})


def test_marked_records_serve_only_requests_with_the_same_extensions(
    records: tuple[Path, ...], tmp_path: Path
) -> None:
    write_marks(tmp_path, [EXTENSION])
    files = (tmp_path / RECORD_EXTENSIONS, *records)
    assert read_records(files, {OTHER.digest, EXTENSION.digest})
    for extensions in (set[str](), {OTHER.digest}):
        with pytest.raises(JobError, match=r"lacks: my_spaces\.py \(eeeeeeeeeeee\)") as caught:
            read_records(files, extensions)
        assert caught.value.code is ErrorCode.RECORDS_INVALID


def test_records_without_extensions_have_no_marks(tmp_path: Path) -> None:
    write_marks(tmp_path, ())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("[]\n", "[]\n"), "is not one of"),
        (("{", "["), "is not one of"),
        (('["1", "x"]\n', '["2", "y"]\n'), "are not two files"),
        (('["1", "x"]\n', "[0, [1]]\n"), "TVM cannot read"),
        (('["1", "x"]\n',), "are not two files"),
        (("[" * 100_000, "["), "is not one of"),
    ],
)
def test_files_that_are_no_records_are_refused(
    texts: tuple[str, ...], message: str, server: CandidateClient, tmp_path: Path
) -> None:
    files = tuple(tmp_path / f"{index}.json" for index in range(len(texts)))
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    with pytest.raises(JobError) as caught:
        run_tune(server, tmp_path, TuneOptions(trials=2, records=GIVEN[: len(files)]), records=files)
    assert caught.value.code is ErrorCode.RECORDS_INVALID
    assert message in caught.value.detail
