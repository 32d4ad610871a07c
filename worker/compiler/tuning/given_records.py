"""Tuning records that a request gives: advice for a search, which measures what they propose."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import tvm
import tvm_ffi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from bessemer.contract.base import Digest
from bessemer.contract.problem import ErrorCode
from worker.compiler.schedules.annotations import LAID_OUT
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.tuning.record_marks import read_marks
from worker.compiler.tuning.session import tuning_logger
from worker.compiler.tuning.trial_budget import best_of
from worker.errors import JobError, failure_of, ran_out_of_memory

MOST_OF_A_FUNCTION = 8
"""How many records of a function are measured, the fastest first."""

_ENTRY = "main"
_FILES = "MetaSchedule's database_workload.json and database_tuning_record.json"


def read_records(files: Sequence[Path], extensions: Collection[Digest]) -> tuple[TuningRecord, ...]:
    """Read the two files of MetaSchedule's database, and the marks beside them, in any order.

    Args:
        files: the files.
        extensions: the request's.

    Raises:
        JobError: ``records-invalid``: they are not such files, or their marks name an extension that the
            request lacks.
    """
    if not files:
        return ()
    databases = [file for file in files if not _is_marks(file, extensions)]
    by_kind = {_is_workloads(file): file for file in databases}
    if len(databases) != 2 or len(by_kind) != 2:
        raise JobError(ErrorCode.RECORDS_INVALID, f"the records are not two files: {_FILES}")
    try:
        database = ms.database.JSONDatabase(str(by_kind[True]), str(by_kind[False]), allow_missing=False)
        return tuple(database.get_all_tuning_records())
    except REFUSALS as error:
        detail = f"TVM cannot read {_FILES}: {_first_line(error)}"
        raise failure_of(ErrorCode.RECORDS_INVALID, error, detail) from error


def records_of(module: tvm.IRModule, records: Sequence[TuningRecord]) -> list[TuningRecord]:
    """The records of a function, the fastest first.

    Records that want another layout schedule nothing and are left out.
    """
    own = [record for record in records if LAID_OUT not in str(record.trace) and _fits(record, module)]
    return sorted(own, key=lambda record: best_of(record.run_secs) or float("inf"))


class RecordProposals:
    """The candidates of a function's records."""

    def __init__(self, records: Sequence[TuningRecord]) -> None:
        self._left = list(records[:MOST_OF_A_FUNCTION])

    def next(self, count: int) -> list[MeasureCandidate]:
        """See ``Proposals.next``. A record whose trace no longer applies proposes nothing."""
        candidates: list[MeasureCandidate] = []
        while self._left and len(candidates) < count:
            record = self._left.pop(0)
            try:
                candidates.append(record.as_measure_candidate())
            except REFUSALS as error:
                if ran_out_of_memory(error):
                    raise
                tuning_logger().warning("a record does not apply: %s", _first_line(error))
        return candidates

    def learn(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.learn``."""

    def restore(self, candidates: list[MeasureCandidate], results: list[RunnerResult]) -> None:
        """See ``Proposals.restore``."""
        known = {str(candidate.sch.trace) for candidate in candidates}
        self._left = [record for record in self._left if str(record.trace) not in known]


def _is_marks(file: Path, extensions: Collection[Digest]) -> bool:
    """Whether a file holds marks. If it does, refuse those of extensions that the request lacks."""
    marks = read_marks(file)
    missing = [f"{mark.name} ({mark.digest[:12]})" for mark in marks if mark.digest not in extensions]
    if missing:
        detail = f"the records depend on extensions that the request lacks: {', '.join(missing)}"
        raise JobError(ErrorCode.RECORDS_INVALID, detail)
    return bool(marks)


def _is_workloads(file: Path) -> bool:
    """Whether lines pair a hash and a module; those of records begin with the number of a workload."""
    try:
        with file.open(encoding="utf-8") as lines:
            head = json.loads(lines.readline())[0]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise JobError(ErrorCode.RECORDS_INVALID, f"a file of records is not one of {_FILES}") from error
    return isinstance(head, str)


def _fits(record: TuningRecord, module: tvm.IRModule) -> bool:
    workload = record.workload.mod
    if _ENTRY not in [variable.name_hint for variable in workload.get_global_vars()]:
        return False
    return bool(tvm_ffi.structural_equal(workload[_ENTRY].body, module[_ENTRY].body, map_free_vars=True))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
