"""The queue as app and worker know it: tasks go in by kind and id, each is handled once it is taken.

A queue only says *what* is to be done. Whether it still needs doing, and who may write the result, is the
row's to say (``Jobs.start`` gives a fenced attempt), so a task that is handed out twice does no harm.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from bessemer.contract.queue import QUEUES, Loss, Postponement, QueueName, TaskKind, job_kind
from bessemer.telemetry.logs import LogFields, task_fields

__all__ = [
    "QUEUES",
    "CanTake",
    "Consumer",
    "Handle",
    "Loss",
    "Postponement",
    "Queue",
    "QueueName",
    "Task",
    "TaskKind",
    "job_kind",
    "task_key",
]


def task_key(kind: str, task_id: str) -> str:
    """A task's identity in the queue; there is no blank in it."""
    return f"{kind}:{task_id}"


@dataclass(frozen=True)
class Task:
    """One thing to do: a job or invocation by its id, a model by its digest. Kind and id make its identity.

    Attributes:
        priority: tasks of a higher one are taken first; of equals, the one that was asked for first.
        needs: what it needs of a worker, as ``contract.capability.Needs`` writes it; None: nothing.
    """

    kind: TaskKind
    id: str
    priority: int = field(default=0, compare=False)
    needs: str | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """The task's identity in the queue."""
        return task_key(self.kind, self.id)

    @classmethod
    def of_key(cls, key: str) -> "Task":
        """The task of that identity."""
        kind, _, task_id = key.partition(":")
        return cls(TaskKind(kind), task_id)

    @property
    def log_fields(self) -> LogFields:
        """What a line about the task names."""
        return task_fields(self.kind, self.id)


class PostponedError(Exception):
    """A worker cannot do a task just now, through no fault of the task's: it is begun again later."""

    def __init__(self, why: Postponement, detail: str) -> None:
        super().__init__(detail)
        self.why = why


Handle = Callable[[Task], Awaitable[None]]
CanTake = Callable[[str], bool]
"""Whether a worker can take tasks with such needs."""


class Queue(Protocol):
    """The side that asks for work. Its methods block and may run in any thread."""

    def enqueue(self, task: Task) -> None:
        """Ask for a task; asking again changes nothing, also after it was handled, until it is forgotten.

        Raises:
            StoreUnavailableError: the queue cannot be reached.
        """

    def going_on(self) -> frozenset[str]:
        """The keys of the tasks that wait or are in a worker's hand.

        Raises:
            StoreUnavailableError: the queue cannot be reached.
        """

    def revive(self, tasks: Collection[Task]) -> tuple[Task, ...]:
        """Ask anew for those of the tasks that neither wait nor are in a worker's hand.

        A task ends in the queue when it was handled, and when handling it failed too often; the caller names
        those whose rows say that they are still to be done.

        Returns:
            The tasks that wait again.

        Raises:
            StoreUnavailableError: the queue cannot be reached.
        """

    def forget_ended(self, older_than_seconds: float) -> int:
        """Forget some of the tasks that ended so long ago, never one that waits or is in a worker's hand.

        Returns:
            How many there were; 0 at the end.

        Raises:
            StoreUnavailableError: the queue cannot be reached.
        """

    def holders(self) -> frozenset[str]:
        """The ids of the workers that have tasks in hand, as far as the queue knows.

        Raises:
            StoreUnavailableError: the queue cannot be reached.
        """

    def hand_over(self, worker_id: str) -> tuple[Task, ...]:
        """Put back what a worker has in hand, so that any worker can take it; for one that is lost.

        Returns:
            The tasks that went back, each by kind and id alone.

        Raises:
            StoreUnavailableError: the queue cannot be reached.
        """

    def close(self) -> None:
        """Close every connection."""


class Consumer(Protocol):
    """The side that does the work."""

    async def run(self, handle: Handle) -> None:
        """Handle tasks until cancelled, at most one per queue at a time.

        A task that was in hand when this worker died is handled again when a consumer with the same worker
        id runs, or once ``Queue.hand_over`` was called; so is one that was in hand when ``run`` was
        cancelled. ``handle`` is cancelled where it is to stop; where it raises ``StoreUnavailableError`` or
        ``PostponedError``, it is called again after a while.

        Raises:
            StoreUnavailableError: the queue cannot be reached at the start.
        """
