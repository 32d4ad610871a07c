"""The tasks that a supervisor has in flight, for its row in the table of workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from bessemer.contract.base import now
from bessemer.contract.service import RunningTask
from bessemer.contract.stage import Stage
from bessemer.store.queue_port import Task


@dataclass(frozen=True)
class _Task:
    task: Task
    began_at: datetime
    stage: Stage | None = None
    stage_began_at: datetime | None = None


class InFlight:
    """The tasks in flight. The supervisor's loop and the threads of its job records use it.

    A task may appear twice: an attempt that another has replaced may still be ending.
    """

    def __init__(self) -> None:
        self._tasks: dict[object, _Task] = {}

    @contextmanager
    def tracking(self, task: Task) -> Iterator[None]:
        """The task is in flight while the context lasts."""
        key = object()
        self._tasks[key] = _Task(task, now())
        try:
            yield
        finally:
            del self._tasks[key]

    def begin(self, task_id: str, stage: Stage) -> None:
        """Note that a stage of a task has begun."""
        for key, entry in tuple(self._tasks.items()):
            if entry.task.id == task_id:
                self._tasks[key] = replace(entry, stage=stage, stage_began_at=now())

    def tasks(self) -> tuple[RunningTask, ...]:
        """The tasks in flight now, oldest first."""
        return tuple(
            RunningTask(
                kind=entry.task.kind,
                id=entry.task.id,
                began_at=entry.began_at,
                stage=entry.stage,
                stage_began_at=entry.stage_began_at,
            )
            for entry in tuple(self._tasks.values())
        )
