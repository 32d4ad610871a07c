"""The stages of a compilation on one axis of time. Pure functions."""

from dataclasses import dataclass, replace
from datetime import datetime

from bessemer.contract.job import Compilation, JobState
from bessemer.contract.stage import Stage
from bessemer.figures import words
from bessemer.figures.words import search_note

QUEUE = "queue"
DONE, RUNNING, FAILED, ENDED, WAITING, SKIPPED = "done", "running", "failed", "ended", "waiting", "skipped"


@dataclass(frozen=True)
class Row:
    """One stage, or the wait in the queue. ``start`` and ``width`` are in percent of the whole time.

    Attributes:
        state: ``done``, ``running``, ``failed``, ``ended`` (cancelled in it), ``waiting`` or ``skipped``.
    """

    name: str
    state: str
    time: str
    start: float
    width: float


@dataclass(frozen=True)
class Timeline:
    """The rows, and the time from the submission to the end or to now."""

    rows: tuple[Row, ...]
    total: str


def timeline(job: Compilation, at: datetime) -> Timeline:
    """The wait and the stages of a compilation.

    Args:
        job: the compilation. A cached one has the stages of the compilation that made its results.
        at: now, for one that has not ended.
    """
    if job.cached:
        waited, running, elapsed = 0.0, 0.0, sum(each.seconds for each in job.stages)
    else:
        end = job.finished_at or at
        begun = job.started_at or end
        waited = _between(job.created_at, begun)
        elapsed = _between(job.created_at, end)
        running = max(elapsed - waited - sum(each.seconds for each in job.stages), 0.0)
    whole = max(elapsed, waited + sum(each.seconds for each in job.stages), 1e-3)
    rows = [] if job.cached else [_queue_row(job, waited, whole)]
    seconds = {each.stage: each.seconds for each in job.stages}
    start = waited
    for stage in _stages(job):
        if stage in seconds:
            state = FAILED if stage is Stage.TRANSLATE and job.compiles is False else DONE
            row = _row(stage.value, state, seconds[stage], start, whole)
            rows.append(replace(row, time=row.time + search_note(stage, job.request.searches)))
            start += seconds[stage]
        elif stage == job.stage and job.state is not JobState.QUEUED:
            rows.append(_row(stage.value, _state_of_last(job), running, start, whole))
        else:
            rows.append(Row(stage.value, SKIPPED if job.state.final else WAITING, "", 0.0, 0.0))
    return Timeline(tuple(rows), words.duration(1000 * elapsed))


def _stages(job: Compilation) -> tuple[Stage, ...]:
    """The stages that the request asks for."""
    last = job.request.stop_after
    return tuple(stage for stage in Stage if last is None or last.includes(stage))


def _queue_row(job: Compilation, waited: float, whole: float) -> Row:
    is_waiting = job.started_at is None and not job.state.final
    return _row(QUEUE, RUNNING if is_waiting else DONE, waited, 0.0, whole)


def _state_of_last(job: Compilation) -> str:
    return {JobState.FAILED: FAILED, JobState.CANCELLED: ENDED}.get(job.state, RUNNING)


def _row(name: str, state: str, seconds: float, start: float, whole: float) -> Row:
    left = min(max(100 * start / whole, 0.0), 100.0)
    width = min(max(100 * seconds / whole, 0.4), 100.0 - left)
    return Row(name, state, words.duration(1000 * seconds), round(left, 2), round(max(width, 0.0), 2))


def _between(start: datetime, end: datetime) -> float:
    return max((end - start).total_seconds(), 0.0)
