"""The asynchronous client, with the methods of ``Client``."""

import os
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

import httpx

from bessemer.client import operations, submission
from bessemer.client.async_job import AsyncJob
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs
from bessemer.client.operations import NO_LABELS
from bessemer.client.sources import ModelSource, Progress
from bessemer.client.transport import DEFAULT_TIMEOUT_SECONDS, AsyncTransport, make_settings
from bessemer.contract.job import JobState
from bessemer.contract.model import Model, ModelFormat, ModelState
from bessemer.contract.options import (
    BenchmarkOptions,
    InspectOptions,
    OptimizeOptions,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from bessemer.contract.request import CompilationRequest, Parameters
from bessemer.contract.service import Readiness, TargetList, WorkerList
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST, Target


class AsyncClient:
    """A connection to a Bessemer server for asyncio, with the arguments and errors of ``Client``.

    File access, hashing and export run in threads.
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._transport = AsyncTransport(make_settings(url, timeout), transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.address!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """See ``Client.close``."""
        await self._transport.close()

    async def upload(
        self,
        model: str | os.PathLike[str] | bytes,
        progress: Progress | None = None,
        *,
        name: str | None = None,
    ) -> Model:
        """See ``Client.upload``."""
        return await self._transport.run(submission.upload(model, progress, name))

    async def inspect(
        self,
        model: str | os.PathLike[str] | bytes,
        progress: Progress | None = None,
        *,
        name: str | None = None,
    ) -> Model:
        """See ``Client.inspect``."""
        return await self._transport.run(submission.inspect(model, progress, name))

    async def model(self, digest: str) -> Model:
        """See ``Client.model``."""
        return await self._transport.run(submission.get_model(digest))

    async def models(
        self,
        state: ModelState | None = None,
        *,
        name: str | None = None,
        format: ModelFormat | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[Model]:
        """See ``Client.models``."""
        query = operations.make_model_query(state, name, format, created_after, created_before)
        while True:
            page = await self._transport.run(operations.model_page(query))
            for model in page.items:
                yield model
            if page.next is None:
                return
            query = query.model_copy(update={"cursor": page.next})

    async def delete_model(self, digest: str) -> None:
        """See ``Client.delete_model``."""
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
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> AsyncJob:
        """See ``Client.submit``."""
        given = submission.Submission(
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
            name=name,
            labels=labels,
            priority=priority,
            timeout_seconds=timeout_seconds,
        )
        return AsyncJob(self._transport, await self._transport.run(submission.submit(given, progress)))

    async def post(self, request: CompilationRequest) -> AsyncJob:
        """See ``Client.post``."""
        return AsyncJob(self._transport, await self._transport.run(submission.post(request)))

    async def job(self, job_id: str) -> AsyncJob:
        """See ``Client.job``."""
        return AsyncJob(self._transport, await self._transport.run(operations.get_compilation(job_id)))

    async def jobs(
        self,
        state: JobState | None = None,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] = NO_LABELS,
        model: str | None = None,
        target: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[AsyncJob]:
        """See ``Client.jobs``."""
        query = operations.make_query(state, name, labels, model, target, created_after, created_before)
        while True:
            page = await self._transport.run(operations.page(query))
            for document in page.items:
                yield AsyncJob(self._transport, document)
            if page.next is None:
                return
            query = query.model_copy(update={"cursor": page.next})

    async def targets(self) -> TargetList:
        """See ``Client.targets``."""
        return await self._transport.run(operations.get_targets())

    async def workers(self) -> WorkerList:
        """See ``Client.workers``."""
        return await self._transport.run(operations.get_workers())

    async def require_worker(self, request: CompilationRequest) -> None:
        """See ``Client.require_worker``."""
        await self._transport.run(operations.require_worker(request))

    async def readiness(self) -> Readiness:
        """See ``Client.readiness``."""
        return await self._transport.run(operations.get_readiness())
