"""Where the supervisor writes down what a job's child says."""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bessemer.contract.job import Progress
from bessemer.contract.report import StageTime
from bessemer.contract.stage import Stage
from bessemer.store.rows.invocations import Invocations
from bessemer.store.rows.jobs import Jobs
from worker.protocol.messages import Confined, Message, ProgressMade, StageFinished, StageStarted

PROGRESS_SECONDS = 0.25
"""Progress in between is dropped, so that a talkative job cannot fill the database."""


class Journal(Protocol):
    """The record of one running job. Its methods block."""

    @property
    def stage(self) -> Stage | None:
        """The stage that was written last."""
        ...

    @property
    def latest(self) -> ProgressMade | None:
        """How far that stage is, where it says so."""
        ...

    def write(self, message: Message) -> None:
        """Write down what the child said.

        Raises:
            FencedError: another worker has taken the job over.
        """
        ...

    def printed(self, tail: str) -> None:
        """Keep the end of what the job has printed. Raises as ``write`` does."""
        ...

    def cancel_requested(self) -> bool:
        """Whether the job's user wants it stopped. Raises as ``write`` does."""
        ...


class SilentJournal:
    """For inspections and probes: nobody follows them."""

    stage: Stage | None = None
    latest: ProgressMade | None = None

    def write(self, message: Message) -> None:
        """Write nothing."""

    def printed(self, tail: str) -> None:
        """Keep nothing."""

    def cancel_requested(self) -> bool:
        """Never."""
        return False


class InvocationJournal(SilentJournal):
    """For invocations: nobody follows them, but they can be cancelled."""

    def __init__(self, invocations: Invocations, invocation_id: str, attempt: int) -> None:
        self._invocations = invocations
        self._attempt = (invocation_id, attempt)

    def cancel_requested(self) -> bool:
        """Whether its user wants it stopped."""
        return self._invocations.cancel_requested(*self._attempt)


def _unheard(_job_id: str, _stage: Stage) -> None:
    pass


def _unread(_job_id: str, _attempt: int, _tail: str) -> None:
    pass


class CompilationJournal:
    """For compilations: each message becomes an event and a column of the job's row."""

    def __init__(
        self,
        jobs: Jobs,
        job_id: str,
        attempt: int,
        begin: Callable[[str, Stage], None] = _unheard,
        keep_tail: Callable[[str, int, str], None] = _unread,
    ) -> None:
        self._begin = begin
        self._keep_tail = keep_tail
        self._tail = ""
        self.stage: Stage | None = None
        self.latest: ProgressMade | None = None
        self._jobs = jobs
        self._job = (job_id, attempt)
        self._next_progress = 0.0
        self._finished: Stage | None = None
        self._seq: int | None = None
        self._is_unsure = False

    def write(self, message: Message) -> None:
        """Write down what the child said; of progress at most four times a second, and its end.

        To be called again with the same message where the store was away: nothing is written twice.
        """
        match message:
            case Confined(sandbox=sandbox):
                self._record(partial(self._jobs.confined, *self._job, sandbox))
            case StageStarted(stage=stage):
                self.stage, self.latest = stage, None
                self._begin(self._job[0], stage)
                self._record(partial(self._jobs.stage_started, *self._job, stage))
            case StageFinished(stage=stage, seconds=seconds):
                taken = StageTime(stage=stage, seconds=seconds)
                self._record(partial(self._jobs.stage_finished, *self._job, taken))
            case ProgressMade():
                self.latest = message
                self._progress(message)
            case _:
                pass

    def printed(self, tail: str) -> None:
        """Keep the end of what the job has printed, where it is another than before."""
        if tail != self._tail:
            self._keep_tail(*self._job, tail)
            self._tail = tail

    def cancel_requested(self) -> bool:
        """Whether the job's user wants it stopped."""
        return self._jobs.cancel_requested(*self._job)

    def _progress(self, message: ProgressMade) -> None:
        finished = message.done >= message.total and self._finished is not message.stage
        if time.monotonic() < self._next_progress and not finished:
            return
        progress = Progress(
            stage=message.stage, done=message.done, total=message.total, detail=message.detail
        )
        self._record(partial(self._jobs.progress, *self._job, progress))
        self._next_progress = time.monotonic() + PROGRESS_SECONDS
        if finished:
            self._finished = message.stage

    def _record(self, write: Callable[[], None]) -> None:
        """Write one event. Where only the answer to an earlier try was lost, it is there already."""
        if self._seq is None:
            self._seq = self._jobs.last_seq(*self._job)
        if not self._is_unsure or self._jobs.last_seq(*self._job) == self._seq:
            self._is_unsure = True
            write()
        self._is_unsure = False
        self._seq += 1
