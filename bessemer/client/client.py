"""The client that blocks."""

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

import httpx

from bessemer.client import operations, submission
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs
from bessemer.client.job import Job
from bessemer.client.operations import NO_LABELS
from bessemer.client.sources import ModelSource, Progress
from bessemer.client.transport import DEFAULT_TIMEOUT_SECONDS, Transport, make_settings
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

__all__ = ["Client"]


class Client:
    """A connection to a Bessemer server. Every method raises ``UnreachableError`` where there is no answer.

    Args:
        url: of the server; by default that of BESSEMER_URL, else http://127.0.0.1:8000.
        timeout: seconds to wait for each part of an answer.
        transport: how httpx reaches the server, for tests.

    Raises:
        InvalidArgumentError: the URL is none.
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._transport = Transport(make_settings(url, timeout), transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def upload(
        self,
        model: str | os.PathLike[str] | bytes,
        progress: Progress | None = None,
        *,
        name: str | None = None,
    ) -> Model:
        """Upload a model unless the server has it.

        Args:
            model: a path, or the bytes of a file. A file is hashed first and streamed from disk.
            progress: told the bytes sent and the bytes in all.
            name: what people call it; by default the file's name. A model keeps its first name.

        Raises:
            InvalidArgumentError: the file cannot be read, or the name is not valid.
            ProblemError: the server refused it.
        """
        return self._transport.run(submission.upload(model, progress, name))

    def inspect(
        self,
        model: str | os.PathLike[str] | bytes,
        progress: Progress | None = None,
        *,
        name: str | None = None,
    ) -> Model:
        """Upload a model unless the server has it (or name it by its digest), and wait for its inspection.

        Raises:
            ModelRejectedError: the inspection refused it.
            ProblemError: the server refused the upload, or does not know the digest.
        """
        return self._transport.run(submission.inspect(model, progress, name))

    def model(self, digest: str) -> Model:
        """An uploaded model, by its digest or the first characters of it.

        Raises:
            NotFoundError: there is none.
            ConflictError: there are several.
        """
        return self._transport.run(submission.get_model(digest))

    def models(
        self,
        state: ModelState | None = None,
        *,
        name: str | None = None,
        format: ModelFormat | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Iterator[Model]:
        """The models that are all that is given, newest first, fetched page by page.

        Args:
            state: where they are.
            name: what they are called.
            format: what an inspection found them to be.
            created_after: uploaded after this moment, which knows its time zone.
            created_before: uploaded before this moment.

        Raises:
            InvalidArgumentError: a value is not valid.
        """
        query = operations.make_model_query(state, name, format, created_after, created_before)
        while True:
            page = self._transport.run(operations.model_page(query))
            yield from page.items
            if page.next is None:
                return
            query = query.model_copy(update={"cursor": page.next})

    def delete_model(self, digest: str) -> None:
        """Delete a model. Raises ``NotFoundError``; ``ConflictError`` where a job that goes on needs it."""
        self._transport.run(operations.delete_model(digest))

    def submit(
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
    ) -> Job:
        """Ask for a compilation; uploads what the server lacks.

        Args:
            model: a path, the bytes of a file, the digest of an uploaded model, or an object of torch: an
                ``nn.Module`` is exported with ``torch.export`` in evaluation mode.
            inputs: by name in the order of the model's arguments: a shape (of float32), ``"1x784:float32"``,
                a ``TensorSpec``, or an array or tensor. A `.pt2` needs none. An ``nn.Module`` takes a tuple
                of example tensors as well; with shapes it is exported with seeded random tensors. A size may
                be a name, ``("batch", 784)``: the library then takes any in the name's range.
            dimensions: these ranges, ``{"batch": (1, 64)}``.
            target: the name of a preset or of an LLVM processor, or a target in the compiler's own terms.
            translate: what an operator becomes.
            optimize: how the graph is rewritten and fused.
            parameters: ``separate`` keeps the weights out of the library, in a file of the bundle.
            kernels: by operator, a kernel library, ``auto`` to measure, or ``none``.
            tune: how much to search; nothing by default.
            verify: how close to the original the library must be.
            benchmark: how long to measure, and against what.
            inspect: what of the work in between is kept.
            stop_after: the last stage to run; ``Stage.TRANSLATE`` says what would not compile.
            name: what people call the compilation; by default the file's name, or the module's class.
            labels: what the job is found by in a list.
            priority: of two queued jobs the one of higher priority is taken first; 0 by default.
            timeout_seconds: of the job.
            progress: told the bytes sent and the bytes in all.

        Raises:
            InvalidArgumentError: an argument cannot be used; nothing was uploaded.
            ExportError: torch could not export the module.
            ProblemError: the server refused the model or the request.
        """
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
            name=name,
            labels=labels,
            priority=priority,
            timeout_seconds=timeout_seconds,
        )
        return Job(self._transport, self._transport.run(submission.submit(wanted, progress)))

    def post(self, request: CompilationRequest) -> Job:
        """Ask for a compilation of an uploaded model, in the contract's own terms."""
        return Job(self._transport, self._transport.run(submission.post(request)))

    def job(self, job_id: str) -> Job:
        """A job by its id or the first characters of it.

        Raises:
            NotFoundError: there is none.
            ConflictError: there are several.
        """
        return Job(self._transport, self._transport.run(operations.get_compilation(job_id)))

    def jobs(
        self,
        state: JobState | None = None,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] = NO_LABELS,
        model: str | None = None,
        target: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Iterator[Job]:
        """The jobs that are all that is given, newest first, fetched page by page.

        Args:
            state: where they are.
            name: what they are called.
            labels: which they have; None stands for any value.
            model: the digest of their model, or the first characters of it.
            target: a preset's name, or an mcpu.
            created_after: submitted after this moment, which knows its time zone.
            created_before: submitted before this moment.

        Raises:
            InvalidArgumentError: a value is not valid.
        """
        query = operations.make_query(state, name, labels, model, target, created_after, created_before)
        while True:
            page = self._transport.run(operations.page(query))
            yield from (Job(self._transport, document) for document in page.items)
            if page.next is None:
                return
            query = query.model_copy(update={"cursor": page.next})

    def targets(self) -> TargetList:
        """The presets that a request may name."""
        return self._transport.run(operations.get_targets())

    def workers(self) -> WorkerList:
        """The live workers, and what each of them runs."""
        return self._transport.run(operations.get_workers())

    def require_worker(self, request: CompilationRequest) -> None:
        """Return where a live worker takes a compilation, busy or not. Raises ``NoWorkerError``."""
        self._transport.run(operations.require_worker(request))

    def readiness(self) -> Readiness:
        """Whether the server takes requests, which of its stores it reaches, and which workers live."""
        return self._transport.run(operations.get_readiness())
