"""The clients: ``Client`` blocks, and ``AsyncClient`` has the same methods for asyncio."""

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, Unpack
from urllib.parse import quote

import httpx

from bessemer.client import operations, records, submission
from bessemer.client.group import AsyncGroup, Group
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs
from bessemer.client.ir_modules import Arrays, Beside
from bessemer.client.job import AsyncJob, Job
from bessemer.client.operation import Asynchronous, Blocking, operation
from bessemer.client.operations import NO_LABELS
from bessemer.client.options import SubmitOptions
from bessemer.client.sources import ExtensionSource, ModelSource, Progress
from bessemer.client.steps import Call, Flow, exchange, fetch
from bessemer.client.transport import DEFAULT_TIMEOUT_SECONDS, AsyncTransport, Transport, make_settings
from bessemer.contract.audit import AuditPage
from bessemer.contract.cost_model import LearnedCostModel
from bessemer.contract.device import DeviceList
from bessemer.contract.extension import Extension
from bessemer.contract.fleet import TargetList
from bessemer.contract.group import Group as GroupDocument
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.model import Model, ModelFormat, ModelState
from bessemer.contract.options import (
    BenchmarkOptions,
    InspectOptions,
    OptimizeOptions,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from bessemer.contract.records import RecordsDeleted, RecordsImported, TuningRecord
from bessemer.contract.request import CompilationRequest, Entry, Parameters, Submission
from bessemer.contract.service import Readiness, WorkerList
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST, Target
from bessemer.contract.usage import Usage

AnyJob = TypeVar("AnyJob")
AnyGroup = TypeVar("AnyGroup")


def _filters(
    target: str | None, threads: int | None, workload: str | None, won: bool | None, since: datetime | None
) -> dict[str, object]:
    """The filters of tuning records by name."""
    return {"target": target, "threads": threads, "workload": workload, "won": won, "since": since}


class ClientOperations(Generic[AnyJob, AnyGroup]):
    """The operations of both clients."""

    @operation
    def upload(
        self,
        model: str | os.PathLike[str] | bytes,
        progress: Progress | None = None,
        *,
        name: str | None = None,
    ) -> Flow[Model]:
        """Upload a model, unless the server already has it.

        Args:
            model: a path, or the bytes of a file. A file is hashed first and streamed from disk.
            progress: called with the bytes sent and the total bytes.
            name: a name for people; defaults to the file's name. A model keeps its first name.

        Raises:
            InvalidArgumentError: the file cannot be read, or the name is not valid.
            ProblemError: the server refused the model.
        """
        return submission.upload(model, progress, name)

    @operation
    def inspect(
        self,
        model: str | os.PathLike[str] | bytes,
        progress: Progress | None = None,
        *,
        name: str | None = None,
    ) -> Flow[Model]:
        """Upload a model, unless the server already has it, and wait for its inspection.

        ``model`` may also be the digest of an uploaded model.

        Raises:
            ModelRejectedError: the inspection rejected the model.
            ProblemError: the server refused the upload, or does not know the digest.
        """
        return submission.inspect(model, progress, name)

    @operation
    def model(self, digest: str) -> Flow[Model]:
        """Get an uploaded model by its digest, or by the first characters of its digest.

        Raises:
            NotFoundError: no model matches.
            ConflictError: several models match.
        """
        return submission.get_model(digest)

    @operation
    def delete_model(self, digest: str) -> Flow[None]:
        """Delete a model. Raises ``ConflictError`` if an unfinished job needs it, or ``NotFoundError``."""
        yield from exchange(Call("DELETE", f"/v1/models/{quote(digest, safe='')}"))

    @operation
    def upload_extension(
        self, extension: str | os.PathLike[str] | bytes, *, name: str | None = None
    ) -> Flow[Extension]:
        """Upload an extension, unless the server already has it.

        Args:
            extension: a path, or the bytes of a Python file.
            name: the name of the file. An extension keeps its first name.

        Raises:
            InvalidArgumentError: the file cannot be read, or the name is not valid.
            ProblemError: the server refused the extension.
        """
        return submission.upload_extension(extension, name)

    @operation
    def upload_schedules(self, schedules: Mapping[str, ExtensionSource]) -> Flow[dict[str, str]]:
        """Upload the files of schedules, as in ``submit``; returns ``tune.schedules`` of a request."""
        return submission.upload_schedules(schedules)

    @operation
    def upload_records(self, folder: str | os.PathLike[str]) -> Flow[tuple[str, ...]]:
        """Upload the tuning records of an earlier search; returns ``tune.records`` of a request."""
        return submission.upload_records(folder)

    @operation
    def extension(self, digest: str) -> Flow[Extension]:
        """Get an uploaded extension by its digest, or by the first characters. Raises as ``model`` does."""
        return submission.get_extension(digest)

    @operation
    def delete_extension(self, digest: str) -> Flow[None]:
        """Delete an extension. Raises as ``delete_model`` does."""
        yield from exchange(Call("DELETE", f"/v1/extensions/{quote(digest, safe='')}"))

    @operation
    def submit(
        self,
        model: ModelSource,
        *,
        inputs: Inputs = (),
        dimensions: Dimensions = NO_DIMENSIONS,
        constants: Mapping[str, bool | int | float | str | None] | None = None,
        entries: Mapping[str, Entry | Mapping[str, Any]] | None = None,
        extensions: Iterable[ExtensionSource] = (),
        schedules: Mapping[str, ExtensionSource] = MappingProxyType({}),
        records: str | os.PathLike[str] | None = None,
        stateless: bool | None = None,
        weights: Arrays | None = None,
        reference: Arrays | None = None,
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
        device: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        timeout_seconds: float | None = None,
        cache: bool | None = None,
        progress: Progress | None = None,
    ) -> Flow[AnyJob]:
        """Submit a compilation, and upload the model if the server lacks it.

        Args:
            model: a path, the bytes of a file, the digest of an uploaded model, a torch object, or TVM's
                ``IRModule``. An ``nn.Module`` is exported with ``torch.export`` in evaluation mode. Or a
                dictionary of files, one for each entry point:
                ``{"prefill": "prefill.pt2", "decode": "decode.pt2"}``.
            inputs: for each name, a shape, ``"1x784:float32"``, a ``TensorSpec``, or an array
                or tensor, in the order of the model's arguments. A `.pt2` needs none. An ``nn.Module`` also
                accepts a tuple of example tensors; given shapes, it is exported with seeded random tensors.
                A size can be a name, ``("batch", 784)``: the library accepts every size in its range.
            dimensions: the ranges of named sizes, ``{"batch": (1, 64)}``.
            constants: values for arguments that are not tensors, such as ``{"sr": 16000}``.
            entries: the entry points of the library by name, ``{"prefill": {}, "decode": {}}``: methods of
                the model, or the model with other ``inputs``. A dictionary of exported programs as the model
                has one for each.
            extensions: paths, bytes or digests of Python files with rewrites, translation rules,
                legalizations, search spaces, kernels or functions for this compilation alone.
            schedules: for functions by name or pattern, ``{"fused_linear*": "my_schedule.py"}``: Python files
                that define ``schedule(sch)``, or ``"my_schedules.py:NAME"``.
            records: the tuning records of an earlier search, as a bundle's folder or MetaSchedule's work
                directory: the search measures them first.
            stateless: whether the library's users pass the state of a model that keeps some.
            weights: for an IRModule, the values of parameters by their names: the path of a ``.npz`` or
                ``.safetensors`` file, or arrays.
            reference: for an IRModule, inputs and outputs by their names to verify the library with: the path
                of a ``.npz`` file, or arrays.
            target: the name of a preset or LLVM processor, or a full LLVM target. For several, see
                ``submit_group``.
            translate: how to translate the model to Relax.
            optimize: how to rewrite and fuse the graph.
            parameters: ``separate`` stores the weights in a file beside the library.
            kernels: for each operator, a kernel library, ``auto`` to measure, or ``none``.
            tune: how much to search; by default, not at all.
            verify: how close the library's outputs must be to the model's.
            benchmark: how long to measure, and which baselines.
            inspect: which intermediate results to keep.
            stop_after: the last stage to run; ``Stage.TRANSLATE`` makes it a preflight.
            device: the device that verifies and measures the bundle, and times a search's candidates.
            name: a name for people; defaults to the file's name or the module's class.
            labels: labels to filter lists by.
            priority: workers take queued jobs with a higher priority first; 0 by default.
            timeout_seconds: time limit of the job.
            cache: with False, compile and measure again even if an identical request was answered before.
            progress: called with the bytes sent and the total bytes.

        Raises:
            InvalidArgumentError: an argument is not valid; nothing was uploaded.
            ExportError: torch could not export the module.
            ProblemError: the server refused the model or the request.
        """
        options = {
            "constants": None if constants is None else dict(constants),
            "entries": None if entries is None else dict(entries),
            "stateless": stateless,
            "target": target,
            "translate": translate,
            "optimize": optimize,
            "parameters": parameters,
            "kernels": kernels,
            "tune": tune,
            "verify": verify,
            "benchmark": benchmark,
            "inspect": inspect,
            "stop_after": stop_after,
            "device": device,
            "name": name,
            "labels": None if labels is None else dict(labels),
            "priority": priority,
            "timeout_seconds": timeout_seconds,
            "cache": cache,
        }
        beside = Beside(weights, reference)
        request = yield from submission.upload_all(
            CompilationRequest,
            model,
            inputs,
            dimensions,
            options,
            progress,
            beside,
            extensions,
            schedules,
            records,
        )
        return self._job((yield from submission.post(request)))

    @operation
    def submit_group(
        self, model: ModelSource, *, targets: Iterable[str | Target], **options: Unpack[SubmitOptions]
    ) -> Flow[AnyGroup]:
        """Submit a compilation for each of several targets, and upload the model if the server lacks it.

        One compilation that fails does not affect the others.

        Args:
            model: see ``submit``.
            targets: names of presets or LLVM processors, or full LLVM targets; each once.
            options: the other arguments of ``submit``.

        Raises:
            InvalidArgumentError: an argument is not valid; nothing was uploaded.
            ExportError: torch could not export the module.
            ProblemError: the server refused the model or the request; nothing was submitted.
        """
        request = yield from submission.upload_all_for(model, tuple(targets), options)
        return self._group((yield from submission.post_group(request)))

    @operation
    def post(self, request: CompilationRequest) -> Flow[AnyJob]:
        """Submit a complete request for an uploaded model."""
        return self._job((yield from submission.post(request)))

    @operation
    def post_group(self, request: Submission) -> Flow[AnyGroup]:
        """Submit a complete request with several targets for an uploaded model."""
        return self._group((yield from submission.post_group(request)))

    @operation
    def group(self, group_id: str) -> Flow[AnyGroup]:
        """Get a group by its id, or by the first characters of its id. Raises as ``job`` does."""
        return self._group((yield from operations.get_group(group_id)))

    @operation
    def job(self, job_id: str) -> Flow[AnyJob]:
        """Get a job by its id, or by the first characters of its id.

        Raises:
            NotFoundError: no job matches.
            ConflictError: several jobs match.
        """
        return self._job((yield from operations.get_compilation(job_id)))

    @operation
    def targets(self) -> Flow[TargetList]:
        """List the targets that a request can name, and how the fleet can build, verify and measure each."""
        return fetch(TargetList, Call("GET", "/v1/targets"))

    @operation
    def usage(self) -> Flow[Usage]:
        """Get what the caller's tenant uses, and its limits."""
        return fetch(Usage, Call("GET", "/v1/usage"))

    @operation
    def cost_model(self) -> Flow[LearnedCostModel]:
        """Get the cost model that learned from your tenant's searches.

        Raises:
            NotFoundError: none has learned from them yet.
        """
        return fetch(LearnedCostModel, Call("GET", "/v1/tuning/cost-model"))

    @operation
    def workers(self) -> Flow[WorkerList]:
        """List the live workers and their tasks."""
        return operations.get_workers()

    @operation
    def devices(self) -> Flow[DeviceList]:
        """List the live devices that your compilations may use."""
        return operations.get_devices()

    @operation
    def audit(self, before: int | None = None) -> Flow[AuditPage]:
        """Get a page of the audit log, newest first: entries with a number below ``before``."""
        params = {} if before is None else {"before": str(before)}
        return fetch(AuditPage, Call("GET", "/v1/audit", params=params))

    @operation
    def import_records(
        self, folder: str | os.PathLike[str], *, shared: bool = False
    ) -> Flow[RecordsImported]:
        """Store the tuning records of a JSON database of TVM's MetaSchedule.

        Args:
            folder: a bundle, or the folder with the two files.
            shared: whether searches of other tenants that share may measure them.

        Raises:
            InvalidArgumentError: the files are missing or too large.
            RequestRefusedError: the files are not such a database.
        """
        return records.import_from(Path(folder), shared)

    @operation
    def export_records(
        self,
        folder: str | os.PathLike[str],
        *,
        target: str | None = None,
        threads: int | None = None,
        workload: str | None = None,
        won: bool | None = None,
        since: datetime | None = None,
    ) -> Flow[int]:
        """Write the tuning records that match all given filters as a JSON database; returns how many.

        See ``Client.records`` for the filters.
        """
        return records.export(Path(folder), _filters(target, threads, workload, won, since))

    @operation
    def delete_records(
        self,
        *,
        target: str | None = None,
        threads: int | None = None,
        workload: str | None = None,
        won: bool | None = None,
        since: datetime | None = None,
    ) -> Flow[RecordsDeleted]:
        """Delete the tuning records that match all given filters; without any, all of the tenant's."""
        return records.delete(_filters(target, threads, workload, won, since))

    @operation
    def require_worker(self, request: CompilationRequest) -> Flow[None]:
        """Raise ``NoWorkerError`` unless a live worker, busy or not, can run the compilation.

        Does nothing if the caller may not list workers: then the queue position says what is missing.
        """
        return operations.require_worker(request)

    @operation
    def readiness(self) -> Flow[Readiness]:
        """Get the server's readiness, its stores' reachability and its live workers."""
        return fetch(Readiness, Call("GET", "/readyz"), accept=frozenset({503}))

    def _job(self, document: Compilation) -> AnyJob:
        raise NotImplementedError

    def _group(self, document: GroupDocument) -> AnyGroup:
        raise NotImplementedError


class Client(ClientOperations[Job, Group], Blocking):
    """A connection to a Bessemer server. Every method raises ``UnreachableError`` if the server is silent.

    Args:
        url: the server; defaults to BESSEMER_URL, or else http://127.0.0.1:8000.
        timeout: seconds to wait for each part of a response.
        transport: an httpx transport, for tests.
        api_key: defaults to BESSEMER_API_KEY, or else to the content of the file BESSEMER_API_KEY_FILE.

    Raises:
        InvalidArgumentError: the URL is not valid.
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
        *,
        api_key: str | None = None,
    ) -> None:
        self._transport = Transport(make_settings(url, timeout, api_key), transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.address!r})"

    @property
    def console(self) -> str:
        """The address of the server's console, its pages for browsers."""
        return self._transport.console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def models(
        self,
        state: ModelState | None = None,
        *,
        name: str | None = None,
        format: ModelFormat | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Iterator[Model]:
        """List the models that match all given filters, newest first, page by page.

        Args:
            state: the models' state.
            name: the models' name.
            format: the format that the inspection found.
            created_after: a timezone-aware time; only models uploaded after it.
            created_before: a timezone-aware time; only models uploaded before it.

        Raises:
            InvalidArgumentError: a value is not valid.
        """
        return self._transport.items(
            operations.model_pages(
                state=state,
                name=name,
                format=format,
                created_after=created_after,
                created_before=created_before,
            )
        )

    def extensions(self) -> Iterator[Extension]:
        """List the uploaded extensions and files of records, newest first, page by page."""
        return self._transport.items(operations.extension_page)

    def records(
        self,
        *,
        target: str | None = None,
        threads: int | None = None,
        workload: str | None = None,
        won: bool | None = None,
        since: datetime | None = None,
    ) -> Iterator[TuningRecord]:
        """List the tuning records that match all given filters, newest first, page by page.

        Args:
            target: the processor or GPU architecture.
            threads: the number of threads.
            workload: the structural hash of the function.
            won: whether the record won in its compilation.
            since: a timezone-aware time; only records measured or imported since then.

        Raises:
            InvalidArgumentError: a value is not valid.
        """
        return self._transport.items(records.pages(_filters(target, threads, workload, won, since)))

    def jobs(
        self,
        state: JobState | None = None,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] = NO_LABELS,
        model: str | None = None,
        target: str | None = None,
        group: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> Iterator[Job]:
        """List the jobs that match all given filters, newest first, page by page.

        Args:
            state: the jobs' state.
            name: the jobs' name.
            labels: labels that the jobs have; None matches any value.
            model: the digest of the jobs' model, or its first characters.
            target: the name of a preset, or an mcpu.
            group: the id of a group.
            created_after: a timezone-aware time; only jobs submitted after it.
            created_before: a timezone-aware time; only jobs submitted before it.

        Raises:
            InvalidArgumentError: a value is not valid.
        """
        pages = operations.compilation_pages(
            state=state,
            name=name,
            label=operations.selectors(labels),
            model=model,
            target=target,
            group=group,
            created_after=created_after,
            created_before=created_before,
        )
        yield from (self._job(document) for document in self._transport.items(pages))

    def _job(self, document: Compilation) -> Job:
        return Job(self._transport, document)

    def _group(self, document: GroupDocument) -> Group:
        return Group(self._transport, document)


class AsyncClient(ClientOperations[AsyncJob, AsyncGroup], Asynchronous):
    """A connection to a Bessemer server for asyncio, with the arguments and errors of ``Client``.

    File access, hashing and export run in threads.
    """

    def __init__(
        self,
        url: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        api_key: str | None = None,
    ) -> None:
        self._transport = AsyncTransport(make_settings(url, timeout, api_key), transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.address!r})"

    @property
    def console(self) -> str:
        """The address of the server's console, its pages for browsers."""
        return self._transport.console

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def models(
        self,
        state: ModelState | None = None,
        *,
        name: str | None = None,
        format: ModelFormat | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[Model]:
        """See ``Client.models``."""
        return self._transport.items(
            operations.model_pages(
                state=state,
                name=name,
                format=format,
                created_after=created_after,
                created_before=created_before,
            )
        )

    def extensions(self) -> AsyncIterator[Extension]:
        """See ``Client.extensions``."""
        return self._transport.items(operations.extension_page)

    def records(
        self,
        *,
        target: str | None = None,
        threads: int | None = None,
        workload: str | None = None,
        won: bool | None = None,
        since: datetime | None = None,
    ) -> AsyncIterator[TuningRecord]:
        """See ``Client.records``."""
        return self._transport.items(records.pages(_filters(target, threads, workload, won, since)))

    async def jobs(
        self,
        state: JobState | None = None,
        *,
        name: str | None = None,
        labels: Mapping[str, str | None] = NO_LABELS,
        model: str | None = None,
        target: str | None = None,
        group: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[AsyncJob]:
        """See ``Client.jobs``."""
        pages = operations.compilation_pages(
            state=state,
            name=name,
            label=operations.selectors(labels),
            model=model,
            target=target,
            group=group,
            created_after=created_after,
            created_before=created_before,
        )
        async for document in self._transport.items(pages):
            yield self._job(document)

    def _job(self, document: Compilation) -> AsyncJob:
        return AsyncJob(self._transport, document)

    def _group(self, document: GroupDocument) -> AsyncGroup:
        return AsyncGroup(self._transport, document)
