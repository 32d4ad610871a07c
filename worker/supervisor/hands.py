"""What a supervisor has in hand, for its own row in the table of workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from bessemer.contract.base import now
from bessemer.contract.service import RunningTask
from bessemer.contract.stage import Stage
from bessemer.store.queue import Task


@dataclass(frozen=True)
class _Held:
    task: Task
    began_at: datetime
    stage: Stage | None = None
    stage_began_at: datetime | None = None


class Hands:
    """The tasks that are being handled, by id; touched by the supervisor's loop and its journals' threads."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    @contextmanager
    def holding(self, task: Task) -> Iterator[None]:
        """The task is in hand while the context lasts."""
        self._held[task.id] = _Held(task, now())
        try:
            yield
        finally:
            del self._held[task.id]

    def begin(self, task_id: str, stage: Stage) -> None:
        """Note that a stage of a task began."""
        held = self._held.get(task_id)
        if held is not None:
            self._held[task_id] = replace(held, stage=stage, stage_began_at=now())

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
