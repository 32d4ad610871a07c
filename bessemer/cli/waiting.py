"""Waits for jobs: shows their progress, limits their time in the queue, and cancels them on Ctrl-C."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import typer
from rich.console import Console

from bessemer.cli.output import TerminatedError, error_lines, errors, interruption_status, tell
from bessemer.cli.timeline import place_line
from bessemer.cli.views import StageView, stage_view
from bessemer.client import Client, Job
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.queue import QueuePlace
from bessemer.errors import (
    BessemerError,
    CompilationCancelledError,
    CompilationFailedError,
    ConflictError,
)

__all__ = [
    "NotTakenError",
    "QueueLimit",
    "ask_to_cancel",
    "cancelled_if_interrupted",
    "first_line",
    "follow",
    "missing_worker",
    "tell_missing_worker",
    "watch",
]

FIRST_PAUSE_SECONDS = 0.05
SOON_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 1.0


def follow(job: Job, console: Console) -> None:
    """Show a job's stages until it has ended; after an interruption it goes on, unless somebody says no."""
    try:
        watch(job, console)
    except KeyboardInterrupt as interruption:
        _interrupted(job, interruption)
        raise typer.Exit(interruption_status(interruption)) from None


def watch(job: Job, console: Console, while_queued: Callable[[QueuePlace], object] | None = None) -> None:
    """Show a job's stages until it has ended, however it does.

    Args:
        job: to watch.
        console: shows the stages.
        while_queued: told the job's place in the queue, again and again; what it raises ends the watching.
    """
    tell(console, first_line(job.document))
    told = missing_worker(job.document)
    with suppress(CompilationFailedError, CompilationCancelledError), stage_view(console, told) as view:
        _wait_in_queue(job, view, while_queued)
        job.wait(on_event=view.tell)


def first_line(compilation: Compilation) -> str:
    """The compilation's id, and what it waits for where no live worker takes it."""
    queue = compilation.queue
    waits = f": {place_line(queue)}" if queue and queue.waiting_for else ""
    return f"compilation {compilation.id}{waits}"


def missing_worker(compilation: Compilation) -> str | None:
    """What no live worker has that a queued compilation needs."""
    return compilation.queue.waiting_for if compilation.queue else None


def _wait_in_queue(job: Job, view: StageView, while_queued: Callable[[QueuePlace], object] | None) -> None:
    """Show where a job stands until it no longer is queued; one that is taken at once stands nowhere."""
    pause_seconds = FIRST_PAUSE_SECONDS
    while job.state is JobState.QUEUED:
        time.sleep(pause_seconds)
        place = job.refresh().document.queue
        if place is not None and while_queued is not None:
            while_queued(place)
        if place is not None and pause_seconds > SOON_SECONDS:
            view.wait(place)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


def _interrupted(job: Job, interruption: KeyboardInterrupt) -> None:
    """Offer to cancel where somebody can answer; a second Ctrl-C leaves the job alone."""
    if not isinstance(interruption, TerminatedError) and _wants_cancel():
        ask_to_cancel(job.id, job.cancel)
        return
    tell(errors, f"{job.id} goes on: `bessemer show --follow {job.id}`, `bessemer cancel {job.id}`")


def _wants_cancel() -> bool:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        answer = errors.input("\nCancel the compilation? [y/N] ", markup=False)
    except (KeyboardInterrupt, EOFError):
        errors.print()
        return False
    return answer.strip().lower() in ("y", "yes")


@contextmanager
def cancelled_if_interrupted(name: str, cancel: Callable[[], object]) -> Iterator[None]:
    """Cancel what the block waits for when it is interrupted: no other program uses its result.

    Raises:
        KeyboardInterrupt: the block was interrupted; its notes say what became of the cancellation.
    """
    try:
        yield
    except KeyboardInterrupt as interruption:
        for line in ask_to_cancel(name, cancel):
            interruption.add_note(line)
        raise


def ask_to_cancel(name: str, cancel: Callable[[], object]) -> tuple[str, ...]:
    """Cancel it, and say so or why that failed; say nothing where it had already ended.

    Returns:
        The lines that were printed.
    """
    try:
        cancel()
    except ConflictError:
        return ()
    except BessemerError as error:
        said = (f"{name} was not cancelled:", *error_lines(error))
    else:
        said = (f"asked to cancel {name}",)
    tell(errors, *said)
    return said


class NotTakenError(BessemerError):
    """No worker took the compilation, or can take it."""


@dataclass(frozen=True)
class QueueLimit:
    """How long a compilation may wait for a worker.

    Attributes:
        seconds: how long any worker may take to accept it. With None it waits for a busy worker without
            limit, and fails at once if no live worker can take it.
        began: by the monotonic clock.
    """

    seconds: float | None
    began: float = field(default_factory=time.monotonic)

    def check(self, place: QueuePlace) -> None:
        """Look at the compilation's place in the queue.

        Raises:
            NotTakenError: it has waited long enough, or no live worker can take it.
        """
        if self.seconds is None:
            if place.waiting_for is not None:
                raise NotTakenError(
                    f"no live worker can take this compilation: it waits for {place.waiting_for}\n"
                    "→ Start such a worker or ask for another --target; `bessemer workers` lists those that "
                    "are alive. Where workers start on demand, wait for one with --queue-timeout."
                )
            return
        if time.monotonic() - self.began >= self.seconds:
            turn = f"it is number {place.position} in the queue; workers that can take it: {place.workers}"
            missing = f"it waits for {place.waiting_for}" if place.waiting_for else turn
            raise NotTakenError(
                f"no worker took this compilation within {self.seconds:g} s: {missing}\n"
                "→ Give it a longer --queue-timeout, or start more workers."
            )


def tell_missing_worker(client: Client, console: Console) -> None:
    """Say so where no worker lives: what was asked for waits until one comes."""
    if not client.workers().items:
        tell(console, "queued, waiting for a live worker")
