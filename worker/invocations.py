"""The supervisor's part in invocations: brings bundle and inputs, orders the run, writes down what came."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.invocation import OUTPUTS, Invocation
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.store.errors import BlobMissingError, DamagedError, FencedError, StoreUnavailableError
from bessemer.store.store import Store
from worker.collect import collect_file
from worker.ending import Ending, conclude
from worker.errors import MisbehavedError, ZygoteLostError
from worker.job_folder import JobFolder, seal
from worker.messages import Invoked
from worker.order import InvokeWork, Work
from worker.settings import WorkerSettings

MAX_ATTEMPTS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bench:
    """Where invocations run.

    Attributes:
        folder: a folder for each, by its name.
        run: orders a job from the zygote.
        ended: told of each result that was written, for metrics.
        uid: the slot's user.
    """

    folder: Callable[[str], AbstractAsyncContextManager[JobFolder]]
    run: Callable[[str, JobFolder, Work, float], Awaitable[Ending]]
    ended: Callable[[Problem | None], None]
    uid: int | None


class Invoker:
    """Does invocations, one at a time."""

    def __init__(self, worker_id: str, settings: WorkerSettings, store: Store, bench: Bench) -> None:
        self._worker_id = worker_id
        self._settings = settings
        self._store = store
        self._bench = bench

    async def handle(self, invocation_id: str) -> None:
        """Do one invocation and write its result.

        Raises:
            StoreUnavailableError: the store is away; the queue begins the task again.
        """
        invocations = self._store.invocations
        attempt = await asyncio.to_thread(invocations.start, invocation_id, self._worker_id)
        if attempt is None:
            return
        try:
            await self._attempt(invocation_id, attempt)
        except ZygoteLostError as error:
            log.warning("invocation %s attempt %d lost its zygote: %s", invocation_id, attempt, error)
            await self.handle(invocation_id)
        except FencedError:
            log.warning("invocation %s was taken over, or deleted", invocation_id)
        except StoreUnavailableError:
            raise
        except Exception as error:
            log.exception("invocation %s attempt %d failed by our own fault", invocation_id, attempt)
            detail = f"{type(error).__name__} in worker {self._worker_id}, whose log has the details"
            with contextlib.suppress(FencedError):
                problem = make_problem(ErrorCode.INTERNAL, detail)
                await asyncio.to_thread(self._fail, invocation_id, attempt, problem)

    async def _attempt(self, invocation_id: str, attempt: int) -> None:
        invocation = await asyncio.to_thread(self._store.invocations.get, invocation_id)
        if invocation is None:
            raise FencedError(invocation_id, attempt)
        if attempt > MAX_ATTEMPTS:
            lost = make_problem(ErrorCode.WORKER_LOST, f"{MAX_ATTEMPTS} workers were lost while they ran it")
            await asyncio.to_thread(self._fail, invocation_id, attempt, lost)
            return
        async with self._bench.folder(f"invoke-{invocation_id}") as folder:
            result = await self._result(invocation, folder)
            await asyncio.to_thread(self._write, invocation, attempt, folder, result)

    async def _result(self, invocation: Invocation, folder: JobFolder) -> Invoked | Problem:
        problem = await asyncio.to_thread(self._fetch, invocation, folder)
        if problem is not None:
            return problem
        work = InvokeWork(runs=invocation.runs)
        ending = await self._bench.run(invocation.id, folder, work, self._settings.limit_invoke_seconds)
        result = conclude(ending)
        if isinstance(result, Invoked | Problem):
            return result
        return make_problem(ErrorCode.CHILD_MISBEHAVED, f"the job ended with the message '{result.kind}'")

    def _fetch(self, invocation: Invocation, folder: JobFolder) -> Problem | None:
        job = self._store.jobs.get(invocation.compilation)
        bundles = [artifact.digest for artifact in job.artifacts if artifact.name == ARCHIVE] if job else []
        if not bundles:
            return make_problem(ErrorCode.INVOCATION_FAILED, "The compilation has no bundle.")
        try:
            for digest, path in ((bundles[0], folder.model), (invocation.inputs, folder.inputs)):
                self._store.artifacts.fetch_to(digest, path)
                seal(path, self._bench.uid)
        except (BlobMissingError, DamagedError) as error:
            return make_problem(ErrorCode.INVOCATION_FAILED, str(error))
        return None

    def _write(
        self, invocation: Invocation, attempt: int, folder: JobFolder, result: Invoked | Problem
    ) -> None:
        if isinstance(result, Invoked):
            try:
                artifact = collect_file(
                    folder.path, OUTPUTS, self._store.artifacts, self._settings.limit_disk_bytes
                )
            except MisbehavedError as error:
                result = error.problem(None)
            else:
                self._store.invocations.succeed(
                    invocation.id, attempt, result.threads, result.latency, result.outputs, artifact
                )
                self._bench.ended(None)
                return
        self._fail(invocation.id, attempt, result)

    def _fail(self, invocation_id: str, attempt: int, problem: Problem) -> None:
        self._store.invocations.fail(invocation_id, attempt, problem)
        self._bench.ended(problem)
