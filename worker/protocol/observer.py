"""Observing a job: one interface for what a job reports, in its own process and in the supervisor.

In the job's process, the pipeline calls an observer that sends messages. The supervisor turns each message
back into the same call on its own observers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bessemer.bundle.manifest import BundleFile
from bessemer.contract.report import ModelEstimate
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.stage import Stage
from worker.protocol.messages import BundleRead, Confined, Message, ProgressMade, StageFinished, StageStarted


class JobObserver:
    """Observes one job. Each method does nothing unless a subclass overrides it."""

    def confined(self, sandbox: SandboxStatus) -> None:
        """The job is confined. Only the supervisor calls this."""

    def stage_started(self, stage: Stage) -> None:
        """A stage begins."""

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """A stage has succeeded after ``seconds`` of wall clock."""

    def progress(
        self, stage: Stage, done: int, total: int, detail: str, estimate: ModelEstimate | None = None
    ) -> None:
        """A stage has done ``done`` of ``total``, in its own unit; a search has an ``estimate``."""

    def bundle_read(self, files: tuple[BundleFile, ...]) -> None:
        """The job has read files of a bundle. Only the supervisor calls this."""

    def snapshot(self, stage: Stage, phase: str, name: str, seconds: float, module: Any) -> None:
        """A pass or a stage has produced a module. Only the job's process calls this, in order."""


@dataclass(frozen=True)
class Observers(JobObserver):
    """Several observers of one job in its own process."""

    each: tuple[JobObserver, ...]

    def stage_started(self, stage: Stage) -> None:
        """See ``JobObserver``."""
        for observer in self.each:
            observer.stage_started(stage)

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """See ``JobObserver``."""
        for observer in self.each:
            observer.stage_finished(stage, seconds)

    def progress(
        self, stage: Stage, done: int, total: int, detail: str, estimate: ModelEstimate | None = None
    ) -> None:
        """See ``JobObserver``."""
        for observer in self.each:
            observer.progress(stage, done, total, detail, estimate)

    def snapshot(self, stage: Stage, phase: str, name: str, seconds: float, module: Any) -> None:
        """See ``JobObserver``."""
        for observer in self.each:
            observer.snapshot(stage, phase, name, seconds, module)


def observe(message: Message, observer: JobObserver) -> None:
    """Pass a job's message on to an observer; a job's last message is not for observers."""
    match message:
        case Confined(sandbox=sandbox):
            observer.confined(sandbox)
        case StageStarted(stage=stage):
            observer.stage_started(stage)
        case StageFinished(stage=stage, seconds=seconds):
            observer.stage_finished(stage, seconds)
        case ProgressMade(stage=stage, done=done, total=total, detail=detail, estimate=estimate):
            observer.progress(stage, done, total, detail, estimate)
        case BundleRead(files=files):
            observer.bundle_read(files)
        case _:
            pass
