"""Jobs: ``Job`` blocks, and ``AsyncJob`` has the same methods for asyncio."""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Self

import httpx

from bessemer.client import invoking, operations
from bessemer.client.events import Follower, LogFollower
from bessemer.client.invoking import Arrays
from bessemer.client.ir_tree import IrTree, function_text, function_tree
from bessemer.client.operation import Asynchronous, Blocking, operation
from bessemer.client.steps import Call, Flow, exchange, fetch
from bessemer.client.transport import AsyncTransport, Transport
from bessemer.contract.code import CodeKind, CodeListing
from bessemer.contract.graph import GRAPH, GraphListing
from bessemer.contract.invocation import DEFAULT_RUNS, Invocation
from bessemer.contract.ir import IrListing
from bessemer.contract.job import Compilation, Event, JobState
from bessemer.contract.report import Report


class JobOperations:
    """The properties and operations of both kinds of jobs."""

    def __init__(self, document: Compilation) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The id of the job."""
        return self.document.id

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.document.state

    @property
    def verified(self) -> bool:
        """Whether the library's outputs match the model's."""
        return bool(self.document.verified)

    @operation
    def delete(self) -> Flow[None]:
        """Delete the job and its files. Raises ``ConflictError`` if it has not ended."""
        yield from exchange(Call("DELETE", operations.compilation_path(self.id)))

    @operation
    def report(self) -> Flow[Report]:
        """Get the report. Raises ``NotFoundError`` unless the job has succeeded."""
        path = f"{operations.compilation_path(self.id)}/report"
        return fetch(Report, Call("GET", path, headers={"Accept": "application/json"}))

    @operation
    def logs(self) -> Flow[str]:
        """Get the job's output: the last part while it runs, all of it once it has ended."""
        return operations.get_logs(self.id)

    @operation
    def ir(self) -> Flow[IrListing]:
        """List the snapshots of the module that the request asked for with ``inspect.ir``.

        Raises ``NotFoundError`` while the job runs, and if there are none.
        """
        return fetch(IrListing, Call("GET", f"{operations.compilation_path(self.id)}/ir"))

    @operation
    def ir_text(self, step: int | str) -> Flow[str]:
        """Get the module after a step as TVMScript. Raises the same errors as ``ir``.

        Args:
            step: the number of the step; or the name of a pass, phase or stage that only one step has.
        """
        return operations.get_ir_text(self.id, step, diff=False)

    @operation
    def ir_function(self, step: int | str, function: str) -> Flow[str]:
        """Get one function of the module after a step as TVMScript. Raises the same errors as ``ir_tree``.

        Args:
            step: the number of the step; or the name of a pass, phase or stage that only one step has.
            function: the function's name in the module.
        """
        return function_text((yield from operations.get_ir_text(self.id, step, diff=False)), function)

    @operation
    def ir_tree(self, step: int | str, function: str) -> Flow[IrTree]:
        """Get the tree of a function after a step: parameters, blocks, bindings, loops and buffers.

        Args:
            step: the number of the step; or the name of a pass, phase or stage that only one step has.
            function: the function's name in the module.

        Raises:
            NotFoundError: see ``ir``.
            InvalidArgumentError: the module has no such function, or its text is cut.
        """
        return function_tree((yield from operations.get_ir_text(self.id, step, diff=False)), function)

    @operation
    def ir_diff(self, step: int | str) -> Flow[str]:
        """Get the changes of a step as a unified diff. Raises the same errors as ``ir``.

        Args:
            step: the number of the step; or the name of a pass, phase or stage that only one step has.
        """
        return operations.get_ir_text(self.id, step, diff=True)

    @operation
    def code(self) -> Flow[CodeListing]:
        """List the library's functions, and the operators of the model that each computes.

        Raises ``NotFoundError`` while the job runs, and unless the request asked for ``inspect.ir`` or
        ``inspect.assembly``.
        """
        return fetch(CodeListing, Call("GET", f"{operations.compilation_path(self.id)}/code"))

    @operation
    def code_text(self, function: str, kind: CodeKind | str = CodeKind.ASSEMBLY) -> Flow[str]:
        """Get a function's assembly, LLVM IR or PTX. Raises the same errors as ``code``.

        Args:
            function: the function's name in the module.
            kind: ``assembly``, ``llvm-ir``, or ``ptx`` for a GPU; empty unless the request asked for
                ``inspect.assembly``.
        """
        return operations.get_code_text(self.id, function, CodeKind(kind))

    @operation
    def graph(self) -> Flow[GraphListing]:
        """Get the model's FX graphs that the request asked for with ``inspect.graph``.

        Raises ``NotFoundError`` while the job runs, and if there are none.
        """
        return fetch(GraphListing, Call("GET", f"{operations.compilation_path(self.id)}/artifacts/{GRAPH}"))

    @operation
    def download(self, directory: str | os.PathLike[str]) -> Flow[Path]:
        """Download the bundle, check each file against its digest, and unpack it.

        Args:
            directory: created if missing; existing files of the same names are replaced.

        Returns:
            The directory.

        Raises:
            InvalidArgumentError: the job has no bundle, or not yet.
            BessemerError: the job failed or was cancelled, and has no bundle.
            BundleError: the bundle is damaged or unsafe.
        """
        yield from self._find_artifacts()
        return (yield from operations.download(self.document, Path(directory)))

    @operation
    def download_artifact(self, name: str, path: str | os.PathLike[str]) -> Flow[Path]:
        """Download one artifact and check its digest. Raises the same errors as ``download``."""
        yield from self._find_artifacts()
        return (yield from operations.download_artifact(self.document, name, Path(path)))

    @operation
    def invoke(self, inputs: Arrays, runs: int = DEFAULT_RUNS, entry: str | None = None) -> Flow[Invocation]:
        """Run the library in a job's sandbox on a worker, and wait for the outputs.

        Args:
            inputs: for each name, an array or the path of a ``.npy`` file; or the path or bytes of one
                ``.npz`` or ``.safetensors`` file.
            runs: number of timed runs; 0 to get only the outputs.
            entry: the entry point to run, if the library has several; by default, the first.

        Raises:
            InvalidArgumentError: the inputs cannot be read.
            RequestRefusedError: the library has no such entry point.
            ConflictError: the job has no bundle, or not yet.
            InvocationFailedError: the inputs do not match the library, or the library failed on them.
            InvocationCancelledError: the invocation was cancelled.
        """
        invocation = yield from invoking.submit(self.id, inputs, runs, entry)
        return (yield from invoking.wait(invocation))

    @operation
    def submit_invocation(
        self, inputs: Arrays, runs: int = DEFAULT_RUNS, entry: str | None = None
    ) -> Flow[Invocation]:
        """Submit an invocation without waiting for it; see ``invoke``.

        Raises:
            InvalidArgumentError: the inputs cannot be read.
            RequestRefusedError: the library has no such entry point.
            ConflictError: the job has no bundle, or not yet.
        """
        return invoking.submit(self.id, inputs, runs, entry)

    @operation
    def wait_for_invocation(self, invocation: Invocation) -> Flow[Invocation]:
        """Wait until an invocation ends.

        Raises:
            InvocationFailedError, InvocationCancelledError: see ``invoke``.
        """
        return invoking.wait(invocation)

    @operation
    def invocation(self, invocation_id: str) -> Flow[Invocation]:
        """Get an invocation. Raises ``NotFoundError``."""
        return invoking.get(self.id, invocation_id)

    @operation
    def cancel_invocation(self, invocation_id: str) -> Flow[Invocation]:
        """Cancel an invocation; a running one ends a little later.

        Raises:
            ConflictError: it has already succeeded or failed.
        """
        return invoking.cancel(self.id, invocation_id)

    @operation
    def download_outputs(self, invocation: Invocation, path: str | os.PathLike[str]) -> Flow[Path]:
        """Download an invocation's outputs as ``.npz`` and check their digest.

        Raises:
            InvalidArgumentError: it has no outputs.
        """
        return invoking.download_outputs(invocation, Path(path))

    def _find_artifacts(self) -> Flow[None]:
        if not self.document.state.final:  # the job may have published another bundle
            self.document = yield from operations.get_compilation(self.id)


class Job(JobOperations, Blocking):
    """A compilation on the server. ``document`` is its latest known state."""

    def __init__(self, transport: Transport, document: Compilation) -> None:
        super().__init__(document)
        self._transport = transport

    def refresh(self) -> Self:
        """Update ``document`` from the server."""
        self.document = self._transport.run(operations.get_compilation(self.id))
        return self

    def cancel(self, keep_best: bool = False) -> Self:
        """Cancel the job; a running job ends a little later.

        Args:
            keep_best: end only the search: the library gets the best schedules so far, and is verified.
                Raises ``ConflictError`` if the job runs no search.
        """
        self.document = self._transport.run(operations.cancel(self.id, keep_best))
        return self

    def events(self, after: int = 0) -> Iterator[Event]:
        """Iterate over the job's events as they happen, until the job ends. Reconnects as needed.

        Args:
            after: skip events up to this ``seq``.
        """
        return self._follow(Follower(self.id, after))

    def wait(self, timeout: float | None = None, on_event: Callable[[Event], object] | None = None) -> Self:
        """Wait until the job ends.

        Args:
            timeout: seconds to wait; the job keeps running afterward.
            on_event: called with every event of the job.

        Raises:
            CompilationFailedError: the job failed; the error holds the problem.
            CompilationCancelledError: the job was cancelled.
            WaitTimeoutError: ``timeout`` expired.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for event in self._follow(Follower(self.id, deadline=deadline)):
            if on_event:
                on_event(event)
        self.refresh()
        operations.finished(self.document)
        return self

    def follow_logs(self) -> Iterator[str]:
        """Iterate over the job's output in pieces of any size, until the job ends.

        While the job runs, only the last 16 KiB are available, so older or fast output can be missing.
        """
        follower = LogFollower(self.id)
        while not follower.done:
            if text := self._transport.run(follower.poll()):
                yield text
            self._transport.run(follower.pause())

    def invocations(self) -> Iterator[Invocation]:
        """List all invocations, newest first, page by page."""
        return self._transport.items(partial(invoking.page, self.id))

    def _follow(self, follower: Follower) -> Iterator[Event]:
        while not follower.done:
            with (
                suppress(httpx.RequestError),  # reconnect after the last event
                self._transport.stream(follower.call()) as (status, chunks),
            ):
                if status != httpx.codes.OK:
                    follower.refuse(status, b"".join(chunks))
                for message in follower.read(chunks).iter_sse():
                    yield from follower.take(message)
            self._transport.run(follower.pause())


class AsyncJob(JobOperations, Asynchronous):
    """A compilation on the server. ``document`` is its latest known state."""

    def __init__(self, transport: AsyncTransport, document: Compilation) -> None:
        super().__init__(document)
        self._transport = transport

    async def refresh(self) -> Self:
        """See ``Job.refresh``."""
        self.document = await self._transport.run(operations.get_compilation(self.id))
        return self

    async def cancel(self, keep_best: bool = False) -> Self:
        """See ``Job.cancel``."""
        self.document = await self._transport.run(operations.cancel(self.id, keep_best))
        return self

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """See ``Job.events``."""
        return self._follow(Follower(self.id, after))

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the same signature as `Job.wait`
        on_event: Callable[[Event], object] | None = None,
    ) -> Self:
        """See ``Job.wait``; what ``on_event`` returns is awaited if it can be."""
        deadline = None if timeout is None else time.monotonic() + timeout
        async for event in self._follow(Follower(self.id, deadline=deadline)):
            found = on_event(event) if on_event else None
            if isawaitable(found):
                await found
        await self.refresh()
        operations.finished(self.document)
        return self

    async def follow_logs(self) -> AsyncIterator[str]:
        """See ``Job.follow_logs``."""
        follower = LogFollower(self.id)
        while not follower.done:
            if text := await self._transport.run(follower.poll()):
                yield text
            await self._transport.run(follower.pause())

    def invocations(self) -> AsyncIterator[Invocation]:
        """See ``Job.invocations``."""
        return self._transport.items(partial(invoking.page, self.id))

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
