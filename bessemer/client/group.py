"""Groups of jobs: ``Group`` blocks, and ``AsyncGroup`` has the same methods for asyncio."""

import time
from contextlib import suppress
from typing import Self

from bessemer.client import operations
from bessemer.client.job import AsyncJob, Job
from bessemer.client.operation import Asynchronous, Blocking, operation
from bessemer.client.steps import Call, Flow, exchange
from bessemer.client.transport import AsyncTransport, Transport
from bessemer.contract.group import Comparison
from bessemer.contract.group import Group as GroupDocument
from bessemer.contract.job import JobState
from bessemer.errors import CompilationCancelledError, CompilationFailedError


class GroupOperations:
    """The properties and operations of both kinds of groups."""

    def __init__(self, document: GroupDocument) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The id of the group."""
        return self.document.id

    @property
    def state(self) -> JobState:
        """The state of the group."""
        return self.document.state

    @operation
    def compare(self) -> Flow[Comparison]:
        """Compare the results target by target, as far as they are known."""
        return operations.get_comparison(self.id)

    @operation
    def delete(self) -> Flow[None]:
        """Delete the jobs of the group and their files. Raises ``ConflictError`` if one has not ended."""
        yield from exchange(Call("DELETE", operations.group_path(self.id)))


class Group(GroupOperations, Blocking):
    """The compilations for several targets on the server. ``document`` is their latest known state."""

    def __init__(self, transport: Transport, document: GroupDocument) -> None:
        super().__init__(document)
        self._transport = transport

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs, in the order of the targets."""
        return tuple(Job(self._transport, document) for document in self.document.items)

    def refresh(self) -> Self:
        """Update ``document`` from the server."""
        self.document = self._transport.run(operations.get_group(self.id))
        return self

    def cancel(self) -> Self:
        """Cancel the jobs that have not ended. Raises ``ConflictError`` if there are none."""
        self.document = self._transport.run(operations.cancel_group(self.id))
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until all jobs end, well or not: ``state`` and ``compare`` tell.

        Args:
            timeout: seconds to wait; the jobs keep running afterward.

        Raises:
            WaitTimeoutError: ``timeout`` expired.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for job in self.jobs:
            with suppress(CompilationFailedError, CompilationCancelledError):
                job.wait(_left(deadline))
        return self.refresh()


class AsyncGroup(GroupOperations, Asynchronous):
    """The compilations for several targets on the server. ``document`` is their latest known state."""

    def __init__(self, transport: AsyncTransport, document: GroupDocument) -> None:
        super().__init__(document)
        self._transport = transport

    @property
    def jobs(self) -> tuple[AsyncJob, ...]:
        """See ``Group.jobs``."""
        return tuple(AsyncJob(self._transport, document) for document in self.document.items)

    async def refresh(self) -> Self:
        """See ``Group.refresh``."""
        self.document = await self._transport.run(operations.get_group(self.id))
        return self

    async def cancel(self) -> Self:
        """See ``Group.cancel``."""
        self.document = await self._transport.run(operations.cancel_group(self.id))
        return self

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the same signature as `Group.wait`
    ) -> Self:
        """See ``Group.wait``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for job in self.jobs:
            with suppress(CompilationFailedError, CompilationCancelledError):
                await job.wait(_left(deadline))
        return await self.refresh()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
