"""The asynchronous job, with the methods of ``Job``."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from bessemer.client import invoking, operations
from bessemer.client.events import Follower
from bessemer.client.invoking import Arrays
from bessemer.client.job import JobView
from bessemer.client.job_logs import LogFollower
from bessemer.client.steps import Flow
from bessemer.client.transport import AsyncTransport
from bessemer.contract.invocation import DEFAULT_RUNS, Invocation
from bessemer.contract.ir import IrListing
from bessemer.contract.job import Compilation, Event
from bessemer.contract.report import Report


class AsyncJob(JobView):
    """A compilation on the server. ``document`` is its latest known state."""

    def __init__(self, transport: AsyncTransport, document: Compilation) -> None:
        super().__init__(document)
        self._transport = transport

    async def refresh(self) -> Self:
        """See ``Job.refresh``."""
        self.document = await self._transport.run(operations.get_compilation(self.id))
        return self

    async def cancel(self) -> Self:
        """See ``Job.cancel``."""
        self.document = await self._transport.run(operations.cancel(self.id))
        return self

    async def delete(self) -> None:
        """See ``Job.delete``."""
        await self._transport.run(operations.delete(self.id))

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """See ``Job.events``."""
        return self._follow(Follower(self.id, after))

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the same signature as `Job.wait`
        on_event: Callable[[Event], object] | None = None,
    ) -> Self:
        """See ``Job.wait``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        async for event in self._follow(Follower(self.id, deadline=deadline)):
            if on_event:
                on_event(event)
        await self.refresh()
        operations.finished(self.document)
        return self

    async def report(self) -> Report:
        """See ``Job.report``."""
        return await self._transport.run(operations.get_report(self.id))

    async def logs(self) -> str:
        """See ``Job.logs``."""
        return await self._transport.run(operations.get_logs(self.id))

    async def follow_logs(self) -> AsyncIterator[str]:
        """See ``Job.follow_logs``."""
        follower = LogFollower(self.id)
        while not follower.done:
            if text := await self._transport.run(follower.look()):
                yield text
            await self._transport.run(follower.pause())

    async def ir(self) -> IrListing:
        """See ``Job.ir``."""
        return await self._transport.run(operations.get_ir(self.id))

    async def ir_text(self, step: int | str) -> str:
        """See ``Job.ir_text``."""
        return await self._transport.run(operations.get_ir_text(self.id, step, diff=False))

    async def ir_diff(self, step: int | str) -> str:
        """See ``Job.ir_diff``."""
        return await self._transport.run(operations.get_ir_text(self.id, step, diff=True))

    async def download(self, directory: str | os.PathLike[str]) -> Path:
        """See ``Job.download``."""
        return await self._run_finished(lambda: operations.download(self.document, Path(directory)))

    async def download_artifact(self, name: str, path: str | os.PathLike[str]) -> Path:
        """See ``Job.download_artifact``."""
        return await self._run_finished(lambda: operations.download_artifact(self.document, name, Path(path)))

    async def invoke(self, inputs: Arrays, runs: int = DEFAULT_RUNS) -> Invocation:
        """See ``Job.invoke``."""
        return await self.wait_for_invocation(await self.submit_invocation(inputs, runs))

    async def submit_invocation(self, inputs: Arrays, runs: int = DEFAULT_RUNS) -> Invocation:
        """See ``Job.submit_invocation``."""
        return await self._transport.run(invoking.submit(self.id, inputs, runs))

    async def wait_for_invocation(self, invocation: Invocation) -> Invocation:
        """See ``Job.wait_for_invocation``."""
        return await self._transport.run(invoking.wait(invocation))

    async def invocation(self, invocation_id: str) -> Invocation:
        """See ``Job.invocation``."""
        return await self._transport.run(invoking.get(self.id, invocation_id))

    async def invocations(self) -> AsyncIterator[Invocation]:
        """See ``Job.invocations``."""
        cursor: str | None = None
        while True:
            page = await self._transport.run(invoking.page(self.id, cursor))
            for invocation in page.items:
                yield invocation
            cursor = page.next
            if cursor is None:
                return

    async def cancel_invocation(self, invocation_id: str) -> Invocation:
        """See ``Job.cancel_invocation``."""
        return await self._transport.run(invoking.cancel(self.id, invocation_id))

    async def download_outputs(self, invocation: Invocation, path: str | os.PathLike[str]) -> Path:
        """See ``Job.download_outputs``."""
        return await self._transport.run(invoking.download_outputs(invocation, Path(path)))

    async def _run_finished(self, flow: Callable[[], Flow[Path]]) -> Path:
        if not self.document.artifacts:
            await self.refresh()
        return await self._transport.run(flow())

    async def _follow(self, follower: Follower) -> AsyncIterator[Event]:
        while not follower.done:
            with suppress(httpx.RequestError):  # reconnect after the last event
                async with self._transport.stream(follower.call()) as (status, chunks):
                    if status != httpx.codes.OK:
                        follower.refuse(status, b"".join([chunk async for chunk in chunks]))
                    async for message in follower.read(chunks).aiter_sse():
                        for event in follower.take(message):
                            yield event
            await self._transport.run(follower.pause())
