"""The client for event loops: the names of ``Client``, each to be awaited."""

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from bessemer.client import invoking, operations, submission
from bessemer.client.client import DEFAULT_TIMEOUT_SECONDS, PAGE_SIZE
from bessemer.client.events import Follower
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs
from bessemer.client.invoking import Arrays
from bessemer.client.operations import NO_LABELS
from bessemer.client.sources import ModelSource, Progress
from bessemer.client.steps import Flow
from bessemer.client.transport import AsyncTransport, make_settings
from bessemer.client.view import JobView
from bessemer.contract.invocation import DEFAULT_RUNS, Invocation
from bessemer.contract.ir import IrListing
from bessemer.contract.job import Compilation, Event, JobState
from bessemer.contract.model import Model
from bessemer.contract.report import Report
from bessemer.contract.request import (
    BenchmarkOptions,
    CompilationRequest,
    InspectOptions,
    OptimizeOptions,
    Parameters,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from bessemer.contract.service import Readiness, TargetList, WorkerList
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST, Target

__all__ = ["AsyncClient", "AsyncJob"]


class AsyncClient:
    """A connection to a Bessemer server, for event loops. Takes and raises what ``Client`` does.

    Disk, hashing and export run in threads.
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._transport = AsyncTransport(make_settings(url, timeout), transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As ``Client.close``."""
        await self._transport.close()

    async def upload(self, model: str | os.PathLike[str] | bytes, progress: Progress | None = None) -> Model:
        """As ``Client.upload``."""
        return await self._transport.run(submission.upload(model, progress))

    async def inspect(self, model: str | os.PathLike[str] | bytes, progress: Progress | None = None) -> Model:
        """As ``Client.inspect``."""
        return await self._transport.run(submission.inspect(model, progress))

    async def model(self, digest: str) -> Model:
        """As ``Client.model``."""
        return await self._transport.run(submission.get_model(digest))

    async def delete_model(self, digest: str) -> None:
        """As ``Client.delete_model``."""
        await self._transport.run(operations.delete_model(digest))

    async def submit(
        self,
        model: ModelSource,
        *,
        inputs: Inputs = (),
        dimensions: Dimensions = NO_DIMENSIONS,
        target: str | Target = HOST,
        translate: TranslateOptions | None = None,
        optimize: OptimizeOptions | None = None,
        parameters: Parameters | str | None = None,
        kernels: Mapping[str, str] | None = None,
        tune: TuneOptions | None = None,
        verify: VerifyOptions | None = None,
        benchmark: BenchmarkOptions | None = None,
        inspect: InspectOptions | None = None,
        stop_after: Stage | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> "AsyncJob":
        """As ``Client.submit``."""
        wanted = submission.Submission(
            model=model,
            inputs=inputs,
            dimensions=dimensions,
            target=target,
            translate=translate,
            optimize=optimize,
            parameters=parameters,
            kernels=kernels,
            tune=tune,
            verify=verify,
            benchmark=benchmark,
            inspect=inspect,
            stop_after=stop_after,
            labels=labels,
            priority=priority,
            timeout_seconds=timeout_seconds,
        )
        return AsyncJob(self._transport, await self._transport.run(submission.submit(wanted, progress)))

    async def post(self, request: CompilationRequest) -> "AsyncJob":
        """As ``Client.post``."""
        return AsyncJob(self._transport, await self._transport.run(submission.post(request)))

    async def job(self, job_id: str) -> "AsyncJob":
        """As ``Client.job``."""
        return AsyncJob(self._transport, await self._transport.run(operations.get_compilation(job_id)))

    async def jobs(
        self,
        state: JobState | None = None,
        *,
        labels: Mapping[str, str | None] = NO_LABELS,
        model: str | None = None,
        target: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator["AsyncJob"]:
        """As ``Client.jobs``."""
        query = operations.make_query(state, labels, model, target, created_after, created_before)
        while True:
            page = await self._transport.run(operations.page(query))
            for document in page.items:
                yield AsyncJob(self._transport, document)
            if page.next is None:
                return
            query = query.model_copy(update={"cursor": page.next})

    async def targets(self) -> TargetList:
        """As ``Client.targets``."""
        return await self._transport.run(operations.get_targets())

    async def workers(self) -> WorkerList:
        """As ``Client.workers``."""
        return await self._transport.run(operations.get_workers())

    async def readiness(self) -> Readiness:
        """As ``Client.readiness``."""
        return await self._transport.run(operations.get_readiness())


class AsyncJob(JobView):
    """A compilation on the server. ``document`` is what was last heard of it."""

    def __init__(self, transport: AsyncTransport, document: Compilation) -> None:
        super().__init__(document)
        self._transport = transport

    async def refresh(self) -> Self:
        """As ``Job.refresh``."""
        self.document = await self._transport.run(operations.get_compilation(self.id))
        return self

    async def cancel(self) -> Self:
        """As ``Job.cancel``."""
        self.document = await self._transport.run(operations.cancel(self.id))
        return self

    async def delete(self) -> None:
        """As ``Job.delete``."""
        await self._transport.run(operations.delete(self.id))

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """As ``Job.events``."""
        return self._follow(Follower(self.id, after))

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the names are those of `Job.wait`
        on_event: Callable[[Event], object] | None = None,
    ) -> Self:
        """As ``Job.wait``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        async for event in self._follow(Follower(self.id, deadline=deadline)):
            if on_event:
                on_event(event)
        await self.refresh()
        operations.finished(self.document)
        return self

    async def report(self) -> Report:
        """As ``Job.report``."""
        return await self._transport.run(operations.get_report(self.id))

    async def logs(self) -> str:
        """As ``Job.logs``."""
        return await self._transport.run(operations.get_logs(self.id))

    async def ir(self) -> IrListing:
        """As ``Job.ir``."""
        return await self._transport.run(operations.get_ir(self.id))

    async def ir_text(self, step: int) -> str:
        """As ``Job.ir_text``."""
        return await self._transport.run(operations.get_ir_text(self.id, step, diff=False))

    async def ir_diff(self, step: int) -> str:
        """As ``Job.ir_diff``."""
        return await self._transport.run(operations.get_ir_text(self.id, step, diff=True))

    async def download(self, directory: str | os.PathLike[str]) -> Path:
        """As ``Job.download``."""
        return await self._run_finished(lambda: operations.download(self.document, Path(directory)))

    async def download_artifact(self, name: str, path: str | os.PathLike[str]) -> Path:
        """As ``Job.download_artifact``."""
        return await self._run_finished(lambda: operations.download_artifact(self.document, name, Path(path)))

    async def invoke(self, inputs: Arrays, runs: int = DEFAULT_RUNS) -> Invocation:
        """As ``Job.invoke``."""
        return await self._transport.run(invoking.invoke(self.id, inputs, runs))

    async def invocations(self) -> AsyncIterator[Invocation]:
        """As ``Job.invocations``."""
        cursor: str | None = None
        while True:
            page = await self._transport.run(invoking.page(self.id, PAGE_SIZE, cursor))
            for invocation in page.items:
                yield invocation
            cursor = page.next
            if cursor is None:
                return

    async def download_outputs(self, invocation: Invocation, path: str | os.PathLike[str]) -> Path:
        """As ``Job.download_outputs``."""
        return await self._transport.run(invoking.download_outputs(invocation, Path(path)))

    async def _run_finished(self, flow: Callable[[], Flow[Path]]) -> Path:
        if not self.document.artifacts:
            await self.refresh()
        return await self._transport.run(flow())

    async def _follow(self, follower: Follower) -> AsyncIterator[Event]:
        while not follower.done:
            with suppress(httpx.RequestError):  # the follower asks again, from the last event on
                async with self._transport.stream(follower.call()) as (status, chunks):
                    if status != httpx.codes.OK:
                        follower.refuse(status, b"".join([chunk async for chunk in chunks]))
                    async for chunk in chunks:
                        for event in follower.feed(chunk):
                            yield event
            await self._transport.run(follower.pause())
