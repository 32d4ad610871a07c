"""The schedules that a request gives for functions by name, as functions in uploaded files."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import TuningRecord

from bessemer.contract.names import did_you_mean
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import WrittenSchedule
from worker.compiler.extensions import UploadedModule, uploaded_modules
from worker.compiler.schedules.annotations import SCHEDULED
from worker.compiler.schedules.blocks import REFUSALS, has_dynamic_sizes
from worker.compiler.schedules.default import default_schedule, is_scheduled
from worker.compiler.tuning.assignment import Assignment, assign, names_asked
from worker.compiler.tuning.session import TuningSession, measure
from worker.compiler.tuning.trace_scripts import (
    file_stem,
    processor_of,
    readable_trace,
    script_of_given,
    tvmscript,
)
from worker.compiler.tuning.trial_budget import COMPARISON_ROUNDS, best_of, milliseconds
from worker.errors import JobError, failure_of, refusal

SCHEDULE = "schedule"
"""The function of a file that a request names without a function."""

_ENTRY = "main"

ScheduleFunction = Callable[[s_tir.Schedule], s_tir.Schedule | Sequence[s_tir.Schedule] | None]


class GivenSchedules(NamedTuple):
    """A module in which some functions have the schedules that the request gives."""

    module: tvm.IRModule
    schedules: tuple[WrittenSchedule, ...]


@dataclass(frozen=True)
class _File:
    """An uploaded file, and the function in it that the request names, if any."""

    uploaded: UploadedModule
    function: str | None

    @property
    def module(self) -> ModuleType:
        return self.uploaded.module

    def function_for(self, name: str) -> str | None:
        """The function that schedules a TensorIR function: the named one, its namesake, or ``schedule``."""
        names = (*names_asked(name), SCHEDULE) if self.function is None else (self.function,)
        return next((each for each in names if callable(getattr(self.module, each, None))), None)


@dataclass(frozen=True)
class _Applied:
    """A function with the schedule of a file; ``schedule`` is None if ``refused``, which a pattern allows."""

    name: str
    source: str
    assignment: Assignment
    workload: tvm.IRModule
    schedule: s_tir.Schedule | None = None
    refused: JobError | None = None


def check_schedules(wanted: Mapping[str, str]) -> None:
    """Refuse schedules whose files or functions do not exist.

    Raises:
        JobError: ``schedule-failed``.
    """
    for source in wanted.values():
        _file_of(source)


def apply_schedules(
    module: tvm.IRModule, wanted: Mapping[str, str], session: TuningSession, records: Path
) -> GivenSchedules:
    """Schedule the functions that the request names, and time them beside their default schedules.

    A function that a pattern names keeps its default schedule if the file does not fit it.

    Args:
        module: legalized and fused, without schedules.
        wanted: files, and the functions in them, by names or patterns of TensorIR functions.
        session: with the target, the seed, the processes that measure, and the database for records.
        records: the folder for each schedule's trace and scheduled function.

    Raises:
        JobError: ``function-unknown``: a name or pattern matches no function. ``schedule-failed``: the file
            raises, its schedule does not apply, or the result does not run.
    """
    functions = {
        variable: function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and not is_scheduled(function)
    }
    names = [names_asked(str(variable.name_hint)) for variable in functions]
    assigned = zip(functions.items(), assign(names, wanted, "scheduled"), strict=True)
    applied = [
        _apply(str(variable.name_hint), function, assignment, session)
        for (variable, function), assignment in assigned
        if assignment is not None
    ]
    _refuse_idle_patterns(applied)
    scheduled = {each.name: each.schedule for each in applied if each.schedule is not None}
    changed = module.clone()
    for variable, function in functions.items():
        schedule = scheduled.get(str(variable.name_hint))
        if schedule is not None:
            changed.update_func(variable, _finished(function, schedule.mod[_ENTRY]))
    times = _measure(applied, session)
    written = [_written(each, times.get(each.name, _Times())) for each in applied]
    for each, shown in zip(applied, written, strict=True):
        _keep(each, shown, session, records)
    return GivenSchedules(changed, tuple(written))


def _file_of(source: str) -> _File:
    name, _, function = source.partition(":")
    uploads = uploaded_modules()
    found = [each for each in uploads if name in (each.digest, each.name)]
    if len(found) != 1:
        known = [each.name for each in uploads]
        how = f"{len(found)} extensions are named" if found else "no extension is named"
        detail = f"{how} '{name}'{did_you_mean(name, known)} (extensions: {', '.join(known) or 'none'})"
        raise JobError(ErrorCode.SCHEDULE_FAILED, detail)
    file = _File(found[0], function or None)
    if function and file.function_for(function) is None:
        detail = f"{file.uploaded.name} defines no function '{function}'{_others(file)}"
        raise JobError(ErrorCode.SCHEDULE_FAILED, detail)
    return file


def _others(file: _File) -> str:
    """A clause with the functions that a file defines; empty if there are none."""
    own = [
        name
        for name, value in vars(file.module).items()
        if inspect.isfunction(value) and value.__module__ == file.module.__name__
    ]
    return (
        f"; name one of its functions, such as {file.uploaded.name}:{own[0]} ({', '.join(own)})"
        if own
        else ""
    )


def _apply(name: str, function: tirx.PrimFunc, assignment: Assignment, session: TuningSession) -> _Applied:
    file = _file_of(assignment.choice)
    own = file.function_for(name)
    source = f"{file.uploaded.name}:{own or SCHEDULE}"
    workload = tvm.IRModule({_ENTRY: function.with_attr("global_symbol", _ENTRY)})
    applied = _Applied(name, source, assignment, workload)
    try:
        if own is None:
            detail = (
                f"{file.uploaded.name} defines neither `{SCHEDULE}` nor a function `{name}`{_others(file)}"
            )
            raise JobError(ErrorCode.SCHEDULE_FAILED, detail)
        schedule = _run(getattr(file.module, own), file, applied, session)
    except JobError as error:
        if not assignment.may_skip or error.code is not ErrorCode.SCHEDULE_FAILED:
            raise
        return _Applied(name, source, assignment, workload, refused=error)
    return _Applied(name, source, assignment, workload, schedule)


def _run(
    function: ScheduleFunction, file: _File, applied: _Applied, session: TuningSession
) -> s_tir.Schedule:
    """Run a schedule function on a workload; its samples follow from the request's seed."""
    seed = Random(session.options.seed).randrange(1, 1 << 31)
    schedule = s_tir.Schedule(applied.workload, seed=seed)
    try:
        with session.target:
            made = function(schedule)
    except (Exception, SystemExit) as error:
        raise _failure(file, applied.name, schedule, error) from error
    if made is None:
        made = schedule
    elif isinstance(made, Sequence) and len(made) == 1:
        made = made[0]
    place = f"{applied.source} on function '{applied.name}'"
    if not isinstance(made, s_tir.Schedule):
        detail = f"{place} returned {type(made).__name__}, not one schedule or None"
        raise JobError(ErrorCode.SCHEDULE_FAILED, detail)
    if not _takes_the_same(made.mod, applied.workload):
        detail = f"{place} made a function of other parameters; it must keep their shapes, types and layouts"
        raise JobError(ErrorCode.SCHEDULE_FAILED, detail)
    return made


def _takes_the_same(module: tvm.IRModule, workload: tvm.IRModule) -> bool:
    """Whether two entries have the same parameters."""
    if _ENTRY not in [variable.name_hint for variable in module.get_global_vars()]:
        return False
    nothing = tirx.Evaluate(tirx.const(0, "int32"))
    own, wanted = (tirx.PrimFunc(one[_ENTRY].params, nothing) for one in (module, workload))
    return bool(tvm_ffi.structural_equal(own, wanted, map_free_vars=True))


def _failure(file: _File, name: str, schedule: s_tir.Schedule, error: BaseException) -> JobError:
    path = file.module.__file__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    place = f"{file.uploaded.name}, line {lines[-1]}" if lines else file.uploaded.name
    blocks = ", ".join(_blocks(schedule)) or "none"
    detail = f"{place}, on function '{name}': {refusal(error)}; its blocks and loops: {blocks}"
    return failure_of(ErrorCode.SCHEDULE_FAILED, error, detail)


def _blocks(schedule: s_tir.Schedule) -> Iterator[str]:
    """Each block with its loops, as far as the schedule has got: ``matmul (i 32, j 17, k 48)``."""
    try:
        waiting = [schedule.get_sblock("root")]
        while waiting:
            block = waiting.pop(0)
            waiting += schedule.get_child_blocks(block)
            loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
            name = str(schedule.get(block).name_hint)
            if name != "root":
                yield f"{name} ({', '.join(f'{loop.loop_var.name} {_size(loop.extent)}' for loop in loops)})"
    except REFUSALS:
        return


def _size(extent: tirx.PrimExpr) -> str:
    return str(int(extent)) if isinstance(extent, tirx.IntImm) else str(extent)


def _refuse_idle_patterns(applied: Sequence[_Applied]) -> None:
    """Refuse a pattern whose file fits none of its functions, with the reason for the first."""
    for assignment in dict.fromkeys(each.assignment for each in applied):
        group = [each for each in applied if each.assignment == assignment]
        if group[0].refused is not None and all(each.refused for each in group):
            raise group[0].refused


def _finished(function: tirx.PrimFunc, scheduled: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function in the place of another, marked so that nothing else schedules it."""
    symbol = function.attrs.get("global_symbol") if function.attrs else None
    named = (
        scheduled.with_attr("global_symbol", symbol) if symbol else scheduled.without_attr("global_symbol")
    )
    return named.with_attr(SCHEDULED, True)


class _Times(NamedTuple):
    """The seconds of a schedule and of the default one; None where unknown."""

    seconds: float | None = None
    default_seconds: float | None = None


def _measure(applied: Sequence[_Applied], session: TuningSession) -> dict[str, _Times]:
    """Time the schedules beside the default ones, by function.

    A function of dynamic sizes has no times, nor has any without a GPU that its target needs.

    Raises:
        JobError: ``schedule-failed``: a schedule does not compile or run.
    """
    timed = [
        (each, each.schedule)
        for each in applied
        if each.schedule is not None and not has_dynamic_sizes(each.workload[_ENTRY])
    ]
    if not session.measures:
        return {}
    ours = [schedule.mod for _, schedule in timed]
    defaults = [
        tvm.IRModule({_ENTRY: default_schedule(each.workload[_ENTRY], session.target)}) for each, _ in timed
    ]
    workloads = [each.workload for each, _ in timed]
    results = measure([*ours, *defaults], session, COMPARISON_ROUNDS, workloads)
    times = {}
    for (each, _), own, default in zip(timed, results[: len(timed)], results[len(timed) :], strict=True):
        if not own.run_secs:
            detail = f"{each.source} on function '{each.name}' does not run: {own.error_msg}"
            raise JobError(ErrorCode.SCHEDULE_FAILED, detail)
        times[each.name] = _Times(best_of(own.run_secs), best_of(default.run_secs))
    return times


def _written(applied: _Applied, times: _Times) -> WrittenSchedule:
    if applied.schedule is None:
        reason = None if applied.refused is None else applied.refused.detail
        return WrittenSchedule(function=applied.name, file=applied.source, skipped=reason)
    return WrittenSchedule(
        function=applied.name,
        file=applied.source,
        schedule_ms=milliseconds(times.seconds),
        default_ms=milliseconds(times.default_seconds),
        trace=readable_trace(applied.schedule.trace),
        script=tvmscript(applied.schedule.mod),
    )


def _keep(applied: _Applied, written: WrittenSchedule, session: TuningSession, records: Path) -> None:
    """Write a schedule's record, its trace as a program, and the scheduled function."""
    if applied.schedule is None:
        return
    if written.schedule_ms is not None:
        workload = session.database.commit_workload(applied.workload)
        seconds, arguments = [written.schedule_ms / 1e3], ArgInfo.from_entry_func(applied.workload)
        record = TuningRecord(applied.schedule.trace, workload, seconds, session.target, arguments)
        session.database.commit_tuning_record(record)
    script = script_of_given(written, applied.workload, processor_of(session.target))
    stem = file_stem(applied.name)
    (records / f"{stem}.py").write_text(script, encoding="utf-8")
    (records / f"{stem}.tvmscript.py").write_text(written.script + "\n", encoding="utf-8")
