"""The queue's interface: the app enqueues tasks by kind and id, workers handle them.

A queue only says *what* to do. The row says whether it is still to be done, and which attempt may write the
result (``Rows.start``), so a task that is handled twice does no harm.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from bessemer.contract.access import DEFAULT_TENANT, Tenant
from bessemer.contract.queue import QUEUES, Loss, Postponement, QueueName, TaskKind, job_kind
from bessemer.contract.tenant_turns import Turns
from bessemer.telemetry.logs import LogFields, task_fields

__all__ = [
    "QUEUES",
    "CanTake",
    "Consumer",
    "Handle",
    "Loss",
    "MostRunning",
    "Postponement",
    "Queue",
    "QueueName",
    "Task",
    "TaskKind",
    "job_kind",
    "split_partition",
    "task_key",
]


def task_key(kind: str, task_id: str) -> str:
    """A task's identity in the queue; it contains no space."""
    return f"{kind}:{task_id}"


def split_partition(partition: str) -> tuple[Tenant, str | None]:
    """The tenant and the needs of a ``Task.partition``. A tenant's name contains no space."""
    tenant, _, needs = partition.partition(" ")
    return tenant, needs or None


@dataclass(frozen=True)
class Task:
    """A unit of work: a compilation, an inspection of a model or an invocation. Kind and id identify it.

    Attributes:
        priority: among the tasks of one tenant, higher is taken first; equal priorities are taken in order.
        needs: what a worker must provide, as ``contract.capability.Needs`` writes it; None if any worker will
            do.
        tenant: the owner; workers take turns among the owners of queued tasks.
    """

    kind: TaskKind
    id: str
    priority: int = field(default=0, compare=False)
    needs: str | None = field(default=None, compare=False)
    tenant: Tenant = field(default=DEFAULT_TENANT, compare=False)

    @property
    def key(self) -> str:
        """The task's identity in the queue."""
        return task_key(self.kind, self.id)

    @property
    def partition(self) -> str:
        """The tasks of the same tenant with the same needs; ``split_partition`` parses it."""
        return self.tenant if self.needs is None else f"{self.tenant} {self.needs}"

    @classmethod
    def of_key(cls, key: str) -> "Task":
        """The task with this key."""
        kind, _, task_id = key.partition(":")
        return cls(TaskKind(kind), task_id)

    @property
    def log_fields(self) -> LogFields:
        """The log fields that name the task."""
        return task_fields(self.kind, self.id)


class PostponedError(Exception):
    """A worker cannot do a task now, for a reason outside the task: the task is retried later."""

    def __init__(self, why: Postponement, detail: str) -> None:
        super().__init__(detail)
        self.why = why


Handle = Callable[[Task], Awaitable[None]]
CanTake = Callable[[QueueName, Tenant, str], bool]
"""Whether a worker, with the devices that a tenant may use, meets the needs of its task in a queue."""
MostRunning = Callable[[Tenant], int | None]
"""How many tasks of a tenant may be in flight in one queue; None means unlimited."""


class Queue(Protocol):
    """The app's side. Its methods block and may run in any thread.

    Each method raises ``StoreUnavailableError`` if the queue cannot be reached.
    """

    def enqueue(self, task: Task) -> None:
        """Put a task in the queue.

        Repeating this has no effect, even after the task ended, until it is deleted.
        """

    def in_progress(self) -> frozenset[str]:
        """The keys of the tasks that are queued or in flight."""

    def requeue(self, tasks: Collection[Task]) -> tuple[Task, ...]:
        """Queue again the tasks that are neither queued nor in flight.

        The queue finishes a task when it was handled, or when handling it failed too often. The caller passes
        tasks whose rows are not final.

        Returns:
            The tasks that were queued again.
        """

    def turns(self, name: QueueName) -> Turns:
        """The turns of the tenants in a queue, which decide whose task is taken next."""

    def delete_ended(self, older_than_seconds: float) -> int:
        """Delete some of the tasks that ended at least this long ago, none that is queued or in flight.

        Returns:
            The number of deleted tasks; 0 when none are left.
        """

    def workers_with_tasks(self) -> frozenset[str]:
        """The ids of the workers with tasks in flight, as far as the queue knows."""

    def hand_back(self, worker_id: str) -> tuple[Task, ...]:
        """Queue a lost worker's tasks in flight again, for any worker.

        Returns:
            The tasks, with kind and id only.
        """

    def close(self) -> None:
        """Close every connection."""


class Consumer(Protocol):
    """The worker's side."""

    async def run(self, handle: Handle) -> None:
        """Handle tasks until cancelled, at most one per queue at a time.

        A task that is in flight when this worker dies is handled again when a consumer with the same worker
        id runs, or after ``Queue.hand_back``; so is a task that is in flight when ``run`` is cancelled.
        ``run`` cancels ``handle`` to stop it, and calls it again later if it raises ``StoreUnavailableError``
        or ``PostponedError``.

        Raises:
            StoreUnavailableError: the queue cannot be reached at the start.
        """
