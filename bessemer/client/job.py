"""A job for programs that block."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx

from bessemer.client import invoking, operations
from bessemer.client.events import Follower
from bessemer.client.invoking import Arrays
from bessemer.client.job_logs import LogFollower
from bessemer.client.steps import Flow
from bessemer.client.transport import Transport
from bessemer.contract.invocation import DEFAULT_RUNS, Invocation
from bessemer.contract.ir import IrListing
from bessemer.contract.job import Compilation, Event, JobState
from bessemer.contract.report import Report

__all__ = ["Job", "JobView"]


class JobView:
    """A job as it was last heard of."""

    def __init__(self, document: Compilation) -> None:
        self.document = document

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The identifier."""
        return self.document.id

    @property
    def state(self) -> JobState:
        """The state."""
        return self.document.state

    @property
    def verified(self) -> bool:
        """Whether the library was found to compute what the model computes."""
        return bool(self.document.verified)


class Job(JobView):
    """A compilation on the server. ``document`` is what was last heard of it."""

    def __init__(self, transport: Transport, document: Compilation) -> None:
        super().__init__(document)
        self._transport = transport

    def refresh(self) -> Self:
        """Ask the server how the job stands."""
        self.document = self._transport.run(operations.get_compilation(self.id))
        return self

    def cancel(self) -> Self:
        """Ask for the job's end; a running job ends a little later."""
        self.document = self._transport.run(operations.cancel(self.id))
        return self

    def delete(self) -> None:
        """Delete the job with all that it made. Raises ``ConflictError`` where it has not ended."""
        self._transport.run(operations.delete(self.id))

    def events(self, after: int = 0) -> Iterator[Event]:
        """The job's events from its start, or those after a number, as they happen, until it ends.

        A lost connection is made again where it broke off.
        """
        return self._follow(Follower(self.id, after))

    def wait(self, timeout: float | None = None, on_event: Callable[[Event], object] | None = None) -> Self:
        """Wait for the end of the job.

        Args:
            timeout: seconds; the job goes on where they run out.
            on_event: told every event, from the job's start.

        Raises:
            CompilationFailedError: it failed; the error holds the problem.
            CompilationCancelledError: it was cancelled.
            WaitTimeoutError: ``timeout`` ran out.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for event in self._follow(Follower(self.id, deadline=deadline)):
            if on_event:
                on_event(event)
        self.refresh()
        operations.finished(self.document)
        return self

    def report(self) -> Report:
        """What the compilation found out. Raises ``NotFoundError`` while it runs, or where it failed."""
        return self._transport.run(operations.get_report(self.id))

    def logs(self) -> str:
        """What the job printed: the end of it while it runs, all once it has ended."""
        return self._transport.run(operations.get_logs(self.id))

    def follow_logs(self) -> Iterator[str]:
        """What the job printed, and what it prints until it ends, in pieces of any size.

        Of what was printed before, and of much that comes at once, only the last 16 KiB come while it runs.
        """
        follower = LogFollower(self.id)
        while not follower.done:
            if news := self._transport.run(follower.look()):
                yield news
            self._transport.run(follower.pause())

    def ir(self) -> IrListing:
        """The snapshots of the module, where the request asked for them with ``inspect.ir``.

        Raises ``NotFoundError`` while the job runs, or where none was taken.
        """
        return self._transport.run(operations.get_ir(self.id))

    def ir_text(self, step: int | str) -> str:
        """The module after a step, as TVMScript. Raises as ``ir``.

        Args:
            step: its number, or its name where only one step has that name.
        """
        return self._transport.run(operations.get_ir_text(self.id, step, diff=False))

    def ir_diff(self, step: int | str) -> str:
        """What a step changed, as a unified diff. Raises as ``ir``.

        Args:
            step: its number, or its name where only one step has that name.
        """
        return self._transport.run(operations.get_ir_text(self.id, step, diff=True))

    def download(self, directory: str | os.PathLike[str]) -> Path:
        """Fetch the bundle, check every file of it against its digest, and unpack it.

        Args:
            directory: made where missing; files of an earlier bundle are replaced.

        Returns:
            The directory.

        Raises:
            InvalidArgumentError: the job has no bundle.
            BundleError: the bundle is damaged, or holds what no bundle holds.
        """
        return self._run_finished(lambda: operations.download(self.document, Path(directory)))

    def download_artifact(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Fetch one artifact into a file and check its digest. Raises as ``download``."""
        return self._run_finished(lambda: operations.download_artifact(self.document, name, Path(path)))

    def invoke(self, inputs: Arrays, runs: int = DEFAULT_RUNS) -> Invocation:
        """Run the compiled library on a worker, confined as a job is, and wait for its end.

        Args:
            inputs: arrays by name, or paths of ``.npy`` files; or the path or the bytes of one ``.npz`` or
                ``.safetensors`` file.
            runs: how often to time it; 0 for the outputs alone.

        Raises:
            InvalidArgumentError: the inputs cannot be read.
            ConflictError: the job has no bundle (yet).
            InvocationFailedError: the inputs are not the library's, or it failed on them.
            InvocationCancelledError: it was cancelled.
        """
        return self.wait_for_invocation(self.submit_invocation(inputs, runs))

    def submit_invocation(self, inputs: Arrays, runs: int = DEFAULT_RUNS) -> Invocation:
        """Ask for a run as ``invoke`` does, and do not wait for it.

        Raises:
            InvalidArgumentError: the inputs cannot be read.
            ConflictError: the job has no bundle (yet).
        """
        return self._transport.run(invoking.submit(self.id, inputs, runs))

    def wait_for_invocation(self, invocation: Invocation) -> Invocation:
        """Wait for the end of an invocation.

        Raises:
            InvocationFailedError, InvocationCancelledError: as ``invoke``.
        """
        return self._transport.run(invoking.wait(invocation))

    def invocation(self, invocation_id: str) -> Invocation:
        """An invocation as it stands. Raises ``NotFoundError``."""
        return self._transport.run(invoking.get(self.id, invocation_id))

    def invocations(self) -> Iterator[Invocation]:
        """Every invocation, newest first, fetched page by page."""
        cursor: str | None = None
        while True:
            page = self._transport.run(invoking.page(self.id, cursor))
            yield from page.items
            cursor = page.next
            if cursor is None:
                return

    def cancel_invocation(self, invocation_id: str) -> Invocation:
        """Ask for an invocation's end; a running one ends a little later.

        Raises:
            ConflictError: it has succeeded or failed.
        """
        return self._transport.run(invoking.cancel(self.id, invocation_id))

    def download_outputs(self, invocation: Invocation, path: str | os.PathLike[str]) -> Path:
        """Fetch an invocation's outputs as ``.npz`` and check their digest.

        Raises:
            InvalidArgumentError: it has none.
        """
        return self._transport.run(invoking.download_outputs(invocation, Path(path)))

    def _run_finished(self, flow: Callable[[], Flow[Path]]) -> Path:
        if not self.document.artifacts:
            self.refresh()
        return self._transport.run(flow())

    def _follow(self, follower: Follower) -> Iterator[Event]:
        while not follower.done:
            with (
                suppress(httpx.RequestError),  # the follower asks again, from the last event on
                self._transport.stream(follower.call()) as (status, chunks),
            ):
                if status != httpx.codes.OK:
                    follower.refuse(status, b"".join(chunks))
                for message in follower.read(chunks).iter_sse():
                    yield from follower.take(message)
            self._transport.run(follower.pause())
