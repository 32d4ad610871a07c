"""Where the supervisor records what a job reports."""

import time
from collections.abc import Callable
from functools import partial

from bessemer.bundle.manifest import PROVENANCE, BundleFile
from bessemer.contract.base import Digest
from bessemer.contract.job import Artifact, Figures, Progress
from bessemer.contract.report import ModelEstimate, StageTime
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from bessemer.contract.target import ResolvedTarget
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.lifecycle import Attempt
from worker.errors import MisbehavedError
from worker.protocol.observer import JobObserver

MAX_FILES = 4096
PROGRESS_SECONDS = 0.25
"""The shortest time between two records of progress, so that no job can flood the database."""


class JobRecord(JobObserver):
    """The record of one running job. This one keeps nothing: it is for inspections and probes.

    Every method blocks, and raises ``FencedError`` if another worker has taken over the job.

    Attributes:
        stage: the stage that started last.
        latest: the last progress of that stage, if it reported any.
    """

    stage: Stage | None = None
    latest: Progress | None = None

    def printed(self, tail: str) -> None:
        """Keep the end of what the job has printed."""

    def cancel_requested(self) -> bool:
        """Whether the user has cancelled the job."""
        return False


class ProbeRecord(JobRecord):
    """Keeps the layers that the probe reports."""

    sandbox: SandboxStatus | None = None

    def confined(self, sandbox: SandboxStatus) -> None:
        """Keep the layers."""
        self.sandbox = sandbox


class InvocationRecord(JobRecord):
    """An invocation has no events, but it can be cancelled."""

    def __init__(self, invocations: Invocations, invocation_id: str, attempt: Attempt) -> None:
        self._invocations = invocations
        self._attempt = (invocation_id, attempt)

    def cancel_requested(self) -> bool:
        """Whether the user has cancelled the invocation."""
        return self._invocations.cancel_requested(*self._attempt)


class CheckRecord(JobRecord):
    """The check of a compilation's bundle has no events, but ends if the compilation is cancelled.

    Attributes:
        files: the digests of the bundle's files by path.
    """

    stage = Stage.PACKAGE

    def __init__(self, jobs: Jobs, job_id: str, attempt: Attempt) -> None:
        self.files: dict[str, Digest] = {}
        self._jobs = jobs
        self._attempt = (job_id, attempt)

    def bundle_read(self, files: tuple[BundleFile, ...]) -> None:
        """Keep the digests.

        Raises:
            MisbehavedError: the job itself wrote provenance, or too many files.
        """
        self.files |= {file.path: file.digest for file in files}
        if len(self.files) > MAX_FILES:
            raise MisbehavedError(f"its bundle has more than {MAX_FILES} files")
        if own := sorted(PROVENANCE & self.files.keys()):
            raise MisbehavedError(f"its bundle already has {own[0]}")

    def cancel_requested(self) -> bool:
        """Whether the user has cancelled the compilation."""
        return self._jobs.cancel_requested(*self._attempt)


class CompilationRecord(JobRecord):
    """Turns each report of a compilation into an event and a column of the job's row.

    A report may be repeated after the store was unavailable: it is never written twice.

    Args:
        jobs: the rows.
        job_id: the job.
        attempt: the attempt.
        begin: called with the job and each stage that starts.
        keep_tail: called with the job, the attempt, and the end of what the job has printed.
    """

    def __init__(
        self,
        jobs: Jobs,
        job_id: str,
        attempt: Attempt,
        begin: Callable[[str, Stage], None] = lambda _job_id, _stage: None,
        keep_tail: Callable[[str, Attempt, str], None] = lambda _job_id, _attempt, _tail: None,
    ) -> None:
        self._begin = begin
        self._keep_tail = keep_tail
        self._tail = ""
        self._jobs = jobs
        self._job = (job_id, attempt)
        self._next_progress = 0.0
        self._finished: Stage | None = None
        self._seq: int | None = None
        self._is_unsure = False

    def confined(self, sandbox: SandboxStatus) -> None:
        """Record the layers."""
        self._record(partial(self._jobs.confined, *self._job, sandbox))

    def stage_started(self, stage: Stage) -> None:
        """Record the start of a stage."""
        self.stage, self.latest = stage, None
        self._begin(self._job[0], stage)
        self._record(partial(self._jobs.stage_started, *self._job, stage))

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """Record the end of a stage."""
        taken = StageTime(stage=stage, seconds=seconds)
        self._record(partial(self._jobs.stage_finished, *self._job, taken))

    def progress(
        self, stage: Stage, done: int, total: int, detail: str, estimate: ModelEstimate | None = None
    ) -> None:
        """Record progress at most four times a second, and when it is complete."""
        self.latest = Progress(stage=stage, done=done, total=total, detail=detail, estimate=estimate)
        finished = done >= total and self._finished is not stage
        if time.monotonic() < self._next_progress and not finished:
            return
        self._record(partial(self._jobs.progress, *self._job, self.latest))
        self._next_progress = time.monotonic() + PROGRESS_SECONDS
        if finished:
            self._finished = stage

    def published(
        self, target: ResolvedTarget, figures: Figures | None, artifacts: tuple[Artifact, ...]
    ) -> None:
        """Record that a bundle can be downloaded while the job runs."""
        self._record(partial(self._jobs.publish, *self._job, target, figures, artifacts))

    def waits(self, detail: str) -> None:
        """Record what the job waits for, as the progress of the stage that runs."""
        assert self.stage is not None
        done, total = (0, 0) if self.latest is None else (self.latest.done, self.latest.total)
        self.latest = Progress(stage=self.stage, done=done, total=total, detail=detail[:400])
        self._record(partial(self._jobs.progress, *self._job, self.latest))

    def printed(self, tail: str) -> None:
        """Keep the end of what the job has printed, if it has changed."""
        if tail != self._tail:
            self._keep_tail(*self._job, tail)
            self._tail = tail

    def cancel_requested(self) -> bool:
        """Whether the user has cancelled the job."""
        return self._jobs.cancel_requested(*self._job)

    def _record(self, write: Callable[[], None]) -> None:
        """Write one event, unless an earlier try wrote it and only the answer was lost."""
        if self._seq is None:
            self._seq = self._jobs.last_seq(*self._job)
        if not self._is_unsure or self._jobs.last_seq(*self._job) == self._seq:
            self._is_unsure = True
            write()
        self._is_unsure = False
        self._seq += 1
