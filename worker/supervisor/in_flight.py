"""What a supervisor has in hand, for its own row in the table of workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from bessemer.contract.base import now
from bessemer.contract.service import RunningTask
from bessemer.contract.stage import Stage
from bessemer.store.queue_port import Task


@dataclass(frozen=True)
class _Held:
    task: Task
    began_at: datetime
    stage: Stage | None = None
    stage_began_at: datetime | None = None


class InFlight:
    """The tasks that are being handled; touched by the supervisor's loop and its journals' threads.

    A task may be there twice: an attempt that is fenced out still ends while the next one has begun.
    """

    def __init__(self) -> None:
        self._held: dict[object, _Held] = {}

    @contextmanager
    def holding(self, task: Task) -> Iterator[None]:
        """The task is in hand while the context lasts."""
        handling = object()
        self._held[handling] = _Held(task, now())
        try:
            yield
        finally:
            del self._held[handling]

    def begin(self, task_id: str, stage: Stage) -> None:
        """Note that a stage of a task began."""
        for handling, held in tuple(self._held.items()):
            if held.task.id == task_id:
                self._held[handling] = replace(held, stage=stage, stage_began_at=now())

    def tasks(self) -> tuple[RunningTask, ...]:
        """What is in hand at this moment, the oldest first."""
        return tuple(
            RunningTask(
                kind=held.task.kind,
                id=held.task.id,
                began_at=held.began_at,
                stage=held.stage,
                stage_began_at=held.stage_began_at,
            )
            for held in tuple(self._held.values())
        )
