"""The service's tuning records: those of earlier compilations, and the trials of this one.

A record is found by the structural hash of its function, without constants, and by the target, the threads
and the compiler. Only its trace is used, which is applied to the function of this compilation and may not
bring code along. So a wrong record costs time, and nothing more: what it makes is built and verified like
anything else.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from bessemer.contract.base import Digest
from bessemer.contract.cost_model import MeasuredFunction
from bessemer.contract.records import (
    MAX_PACKED_CHARACTERS,
    MAX_TRACE_CHARACTERS,
    NOT_COMPILED,
    JudgedTrial,
    MeasuredTrial,
    NearTrial,
    SearchScope,
    SizedFunction,
    StoredTrial,
    record_target,
    trace_digest,
)
from bessemer.contract.report import LoadedExtension, StoredRecordsUse
from worker.compiler.layout.choices import AS_EXPECTED, LayoutChoices
from worker.compiler.schedules.annotations import (
    ACTIVATES,
    BLOCK_BITS,
    CHAINED,
    LAID_OUT,
    LAID_OUT_MODEL,
    SIDE_WANTED,
)
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.default import follow_plans
from worker.compiler.schedules.families.convolution.layers import algorithm_of
from worker.compiler.schedules.version import SCHEDULES_VERSION
from worker.compiler.tuning.function_kinds import heaviest_nest, kinds_of
from worker.compiler.tuning.replays import MisfitError, Replays, applied
from worker.compiler.tuning.session import tuning_logger
from worker.errors import ran_out_of_memory, short_message, without_server_details
from worker.protocol.messages import (
    MAX_FUNCTIONS,
    MAX_REPORTED_FUNCTIONS,
    MAX_SIZED_FUNCTIONS,
    NearRecordsRequested,
    PlansMeasured,
    RecordsRequested,
    TrialsJudged,
    TrialsMeasured,
)
from worker.protocol.order import RecordsAnswer
from worker.protocol.records import Records

MAX_TOLD_CHARACTERS = 1 << 25
"""How much one job may report of its trials: half of all its messages. Later trials are not stored."""

MAX_MESSAGE_CHARACTERS = 1 << 17
MAX_FAILURE_CHARACTERS = 400
_TRIALS_AT_ONCE = 16
_NOTHING: Mapping[str, str] = MappingProxyType({})
_MAX_NAME = 200


class Function(NamedTuple):
    """A function of this compilation, its name, and the family that claims it, if that is known."""

    name: str
    module: tvm.IRModule
    family: str | None = None


def workload_of(module: tvm.IRModule) -> str:
    """The structural hash of a function's module without its constants, in decimal as in TVM's databases."""
    return str(tvm_ffi.structural_hash(module, skip_tensor_content=True) % (1 << 64))


def model_of(modules: Iterable[tvm.IRModule]) -> str:
    """A name that models share if their functions, without constants, are the same."""
    return sha256(" ".join(sorted(set(map(workload_of, modules)))).encode()).hexdigest()[:32]


def scope_of(
    target: tvm.target.Target, threads: int, extensions: Sequence[LoadedExtension] = ()
) -> SearchScope:
    """What the records of a compilation for a target have in common.

    Uploaded extensions may change spaces and schedules, so their records serve only requests with the same.
    """
    described = str(target)
    compiler = f"tvm {tvm.__version__}, schedules {SCHEDULES_VERSION}"
    if extensions:
        digests = " ".join(sorted(extension.digest for extension in extensions))
        compiler += f", extensions {sha256(digests.encode()).hexdigest()[:16]}"
    return SearchScope(
        target=record_target(json.loads(described)),
        threads=threads,
        compiler=compiler,
        tvm_target=described,
    )


def trace_text(schedule: s_tir.Schedule) -> str:
    """A schedule's trace in TVM's JSON."""
    return json.dumps(_plain(schedule.trace.as_json()), separators=(",", ":"))


class StoredSchedules(NamedTuple):
    """The records that a compilation without trials uses."""

    records: tuple[TuningRecord, ...]
    judged: tuple[JudgedTrial, ...]
    use: StoredRecordsUse
    choices: LayoutChoices = AS_EXPECTED


def find_schedules(
    functions: Sequence[Function],
    stored: Records,
    replays: Replays,
    scope: SearchScope,
    target: tvm.target.Target,
    into: Database,
    followed: LayoutChoices = AS_EXPECTED,
    laid_out: Sequence[Function] = (),
    may_lay_out: bool = False,
    expected: Sequence[Function] = (),
) -> StoredSchedules:
    """For each function, the fastest record that has won, if its trace and its plan apply.

    A record may say that the model is faster if it is laid out otherwise. Then the layout phase has to do
    that, and the functions that it makes have records of their own.

    Args:
        functions: the functions without schedules.
        stored: the records.
        replays: tries their traces.
        scope: what they must be about.
        target: the target.
        into: a database for the functions.
        followed: what the layout phase has chosen already because of records.
        laid_out: the functions before it did.
        may_lay_out: whether the layout phase can do what records want; else these are passed over.
        expected: the functions that the layout phase makes without records.
    """
    answer = stored.ask(_question((*laid_out, *functions), scope, applies=True))
    modules = {workload_of(function.module): function.module for function in functions}
    winners = [trial for trial in answer.records if trial.won and trial.workload in modules]
    by_workload: dict[str, list[StoredTrial]] = {}
    survivors = replays.surviving(modules, winners, partial(_used, target))
    for trial in survivors:
        by_workload.setdefault(trial.workload, []).append(trial)
    records, judged, misfits = [], [], len(winners) - len(survivors)
    choices = followed
    model = model_of(function.module for function in expected)
    for function in functions:
        for trial in by_workload.get(workload_of(function.module), ()):
            try:
                schedule, wanted = _used(target, trial.trace, function.module)
            except REFUSALS as error:
                misfits += _skip(error)
                continue
            if wanted and (not may_lay_out or followed >= wanted or not is_about(schedule.mod, model)):
                continue
            judged.append(JudgedTrial(workload=trial.workload, digest=trace_digest(trial.trace), won=False))
            if wanted:
                choices |= wanted
                break
            arguments = ArgInfo.from_entry_func(function.module)
            workload = into.commit_workload(function.module)
            records.append(TuningRecord(schedule.trace, workload, [trial.seconds], target, arguments))
            break
    hits = len(judged)
    use = StoredRecordsUse(hits=hits, misses=len(functions) - hits, misfits=misfits)
    return StoredSchedules(tuple(records), tuple(judged), use, choices)


def _used(
    target: tvm.target.Target, trace: str, module: tvm.IRModule
) -> tuple[s_tir.Schedule, LayoutChoices]:
    """A function's schedule after a trace, and what that wants from the layout phase.

    Raises ``REFUSALS`` if the trace or its plan does not apply.
    """
    schedule = applied(trace, module)
    follow_plans(schedule.mod, target)
    return schedule, wanted_layout(schedule.mod)


def layout_candidate(module: tvm.IRModule, wanted: LayoutChoices, model: str) -> MeasureCandidate:
    """The record of a function that says that the model is faster if laid out as wanted.

    A choice for the whole model names the model, since other models may share the function.
    """
    schedule, current = s_tir.Schedule(module), algorithm_of(module["main"])
    root = schedule.get_sblock("root")
    if current is not None and current.layer in wanted.sides:
        schedule.annotate(root, SIDE_WANTED, wanted.sides[current.layer])
    if wanted.block_bits is not None:
        schedule.annotate(root, BLOCK_BITS, wanted.block_bits)
    if not wanted.activates:
        schedule.annotate(root, ACTIVATES, 0)
    if not wanted.chains:
        schedule.annotate(root, CHAINED, 0)
    if wanted.is_about_model:
        schedule.annotate(root, LAID_OUT_MODEL, model)
    return MeasureCandidate(schedule, ArgInfo.from_entry_func(module))


def wanted_layout(module: tvm.IRModule) -> LayoutChoices:
    """What a record wants from the layout phase; nothing if it is a schedule."""
    root = _root_annotations(module)
    current = algorithm_of(module["main"]) if SIDE_WANTED in root else None
    return LayoutChoices(
        {} if current is None else {current.layer: int(root[SIDE_WANTED])},
        int(root[BLOCK_BITS]) if BLOCK_BITS in root else None,
        bool(int(root.get(ACTIVATES, 1))),
        bool(int(root.get(CHAINED, 1))),
    )


def is_about(module: tvm.IRModule, model: str) -> bool:
    """Whether what a record wants from the layout phase concerns this model, or only layers of any model."""
    return not wanted_layout(module).is_about_model or _root_annotations(module).get(LAID_OUT_MODEL) == model


def _root_annotations(module: tvm.IRModule) -> Mapping[str, Any]:
    body = module["main"].body
    return dict(body.block.annotations) if isinstance(body, s_tir.SBlockRealize) else {}


@dataclass(frozen=True)
class RestoredTrial:
    """A trial of an earlier attempt, and what the default schedule took beside it.

    ``candidate`` is None if its trace no longer applies.
    """

    space: str
    candidate: MeasureCandidate | None
    result: RunnerResult
    default_seconds: float | None = None


@dataclass
class SearchJournal:
    """Stores the trials of a search as they are measured.

    Attributes:
        stored: where they are stored.
        scope: what they are about.
        replays: tries the traces of others.
        stopped: whether the user wants the best so far.
        count: the trials of this compilation, over all attempts.
        searched_seconds: how long earlier attempts have searched.
        began: when this attempt began, by the monotonic clock.
    """

    stored: Records
    scope: SearchScope
    replays: Replays
    stopped: bool = False
    count: int = 0
    searched_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)
    _told: int = 0
    _is_open: bool = False
    _known: set[str] = field(default_factory=set)

    def open(self, functions: Sequence[Function]) -> RecordsAnswer:
        """Ask for the records of functions, and for the trials of earlier attempts.

        A search asks again for functions that only another layout of the model makes.
        """
        answer = self.stored.ask(_question(functions, self.scope, applies=False))
        self.stopped, self.count = answer.stop or self.stopped, max(answer.count, self.count)
        if not self._is_open:
            self._is_open, self.searched_seconds = True, answer.elapsed_seconds
        return answer

    def near(self, functions: Sequence[SizedFunction]) -> Iterator[NearTrial]:
        """Ask for records of functions that are similar to these."""
        for start in range(0, len(functions), MAX_SIZED_FUNCTIONS):
            some = tuple(functions[start : start + MAX_SIZED_FUNCTIONS])
            yield from self.stored.ask(NearRecordsRequested(functions=some)).near

    def begin(self, started: float) -> float:
        """Let this attempt begin to search at a moment by the monotonic clock.

        Returns:
            When the search would have begun if it had gone on since the first attempt.
        """
        self.began = started
        return started - self.searched_seconds

    def tell(
        self,
        function: Function,
        space: str,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
        default_seconds: float | None = None,
    ) -> None:
        """Store the trials of one round, and the default schedule's time; returns when they are stored."""
        described = _Described.of(function, space, default_seconds)
        workload = described.workload
        trials = [
            _trial(described, candidate, result)
            for candidate, result in zip(candidates, results, strict=True)
        ]
        kept = [trial for trial in trials if trial is not None]
        packed = {} if workload in self._known else _packed(workload, function.module)
        self._known.add(workload)
        if packed or not kept:
            self._send((), packed)
        for some in _parts(kept):
            self._send(some)

    def judge(self, judged: Iterable[JudgedTrial]) -> None:
        """Tell which schedules won in the final comparison."""
        every = tuple(judged)
        for start in range(0, len(every), _TRIALS_AT_ONCE):
            self.stored.report(TrialsJudged(judged=every[start : start + _TRIALS_AT_ONCE]))

    def report_plans(self, functions: Iterable[MeasuredFunction]) -> None:
        """Report what was measured of plans, for cost models."""
        for function in islice(functions, MAX_REPORTED_FUNCTIONS):
            self.stored.report(PlansMeasured(function=function))

    def _send(self, trials: tuple[MeasuredTrial, ...], workloads: Mapping[str, str] = _NOTHING) -> None:
        self._told += sum(map(_size, trials)) + sum(map(len, workloads.values()))
        if self._told > MAX_TOLD_CHARACTERS:
            trials, workloads = (), _NOTHING
        message = TrialsMeasured(
            first=self.count,
            trials=trials,
            workloads=dict(workloads),
            elapsed_seconds=self.searched_seconds + time.monotonic() - self.began,
        )
        self.count += len(trials)
        self.stopped = self.stored.ask(message).stop or self.stopped


def records_for(
    module: tvm.IRModule, records: Sequence[StoredTrial], target: tvm.target.Target, into: Database
) -> tuple[list[TuningRecord], int]:
    """The records of a function whose traces apply to it, and the number of those that do not."""
    workload, found, misfits = workload_of(module), [], 0
    for trial in records:
        if trial.workload != workload:
            continue
        try:
            schedule = applied(trial.trace, module)
        except MisfitError as error:
            misfits += _skip(error)
            continue
        if LAID_OUT in trial.trace:
            continue
        arguments = ArgInfo.from_entry_func(module)
        own = into.commit_workload(module)
        found.append(TuningRecord(schedule.trace, own, [trial.seconds], target, arguments))
    return found, misfits


def restored(module: tvm.IRModule, trials: Sequence[MeasuredTrial]) -> Iterator[RestoredTrial]:
    """The trials of a function in earlier attempts, in order."""
    workload, arguments = workload_of(module), ArgInfo.from_entry_func(module)
    for trial in trials:
        if trial.workload != workload:
            continue
        seconds = None if trial.seconds is None else [trial.seconds]
        candidate: MeasureCandidate | None = None
        try:
            candidate = MeasureCandidate(applied(trial.trace, module), arguments)
        except MisfitError as error:
            _skip(error)
        failure = None if seconds else trial.failure or "it failed in an earlier attempt"
        yield RestoredTrial(trial.space, candidate, RunnerResult(seconds, failure), trial.default_seconds)


def judged_record(record: TuningRecord, won: bool, default_seconds: float | None) -> JudgedTrial:
    """What the final comparison says of a record."""
    text = json.dumps(_plain(record.trace.as_json()), separators=(",", ":"))
    return JudgedTrial(
        workload=workload_of(record.workload.mod),
        digest=trace_digest(text),
        won=won,
        default_seconds=default_seconds,
    )


def _question(functions: Sequence[Function], scope: SearchScope, applies: bool) -> RecordsRequested:
    hashes = dict.fromkeys(workload_of(function.module) for function in functions)
    return RecordsRequested(scope=scope, functions=tuple(hashes)[:MAX_FUNCTIONS], applies=applies)


def _skip(error: BaseException) -> int:
    if ran_out_of_memory(error):
        raise error
    tuning_logger().warning("a stored record does not apply: %s", short_message(error))
    return 1


class _Described(NamedTuple):
    """What the trials of one round have in common."""

    workload: str
    function: str
    space: str
    default_seconds: float | None
    kind: Digest | None
    extents: tuple[int, ...]

    @classmethod
    def of(cls, function: Function, space: str, default_seconds: float | None) -> _Described:
        nest = heaviest_nest(function.module)
        kind = None if nest is None else kinds_of(nest, function.family).get(space)
        return cls(
            workload_of(function.module),
            _printable(function.name),
            _printable(space),
            default_seconds or None,
            kind,
            () if nest is None or kind is None else nest.extents,
        )


def _trial(described: _Described, candidate: MeasureCandidate, result: RunnerResult) -> MeasuredTrial | None:
    trace = trace_text(candidate.sch)
    arguments = json.dumps(_plain([info.as_json() for info in candidate.args_info]), separators=(",", ":"))
    if max(len(trace), len(arguments)) > MAX_TRACE_CHARACTERS:
        return None
    seconds = min(map(float, result.run_secs), default=None) if result.run_secs else None
    if seconds is not None and seconds <= 0:
        seconds = None
    reason = without_server_details(str(result.error_msg or "it has no time"))
    return MeasuredTrial(
        **described._asdict(),
        trace=trace,
        arguments=arguments,
        seconds=seconds,
        failure=None if seconds is not None else _end_of(reason),
    )


def _end_of(reason: str) -> str:
    """The end of a reason, which says most, and that it is one of the compiler."""
    start = NOT_COMPILED if reason.startswith(NOT_COMPILED) else ""
    return start + reason.removeprefix(start)[-(MAX_FAILURE_CHARACTERS - len(start)) :]


def _packed(workload: str, module: tvm.IRModule) -> dict[str, str]:
    """A function's module for exports; none if it is too large."""
    packed = base64.b64encode(zlib.compress(tvm.ir.save_json(module).encode())).decode()
    return {workload: packed} if len(packed) <= MAX_PACKED_CHARACTERS else {}


def _parts(trials: Sequence[MeasuredTrial]) -> Iterator[tuple[MeasuredTrial, ...]]:
    """Trials in messages of bounded size."""
    part: list[MeasuredTrial] = []
    size = 0
    for trial in trials:
        own = _size(trial)
        if part and (size + own > MAX_MESSAGE_CHARACTERS or len(part) == _TRIALS_AT_ONCE):
            yield tuple(part)
            part, size = [], 0
        part.append(trial)
        size += own
    if part:
        yield tuple(part)


def _size(trial: MeasuredTrial) -> int:
    return len(trial.trace) + len(trial.arguments) + len(trial.failure or "")


def _printable(text: str) -> str:
    return text.encode("ascii", "replace").decode()[:_MAX_NAME] or "?"


def _plain(value: Any) -> Any:
    """TVM's arrays and numbers as those of Python."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, tvm.tirx.IntImm | tvm.tirx.FloatImm):
        return value.value
    if hasattr(value, "items"):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value]
