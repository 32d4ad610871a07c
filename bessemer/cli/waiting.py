"""Wait for jobs: show their progress, limit their time in the queue, and cancel them on Ctrl-C."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from bessemer.cli.live_view import StageView, stage_view
from bessemer.cli.output import TerminatedError, error_lines, errors, interruption_status, print_lines
from bessemer.cli.timeline import place_line
from bessemer.client import Client, Job
from bessemer.client.outages import Outage
from bessemer.contract.job import Compilation, Event, JobState
from bessemer.contract.queue import QueuePlace
from bessemer.errors import (
    BessemerError,
    CompilationCancelledError,
    CompilationFailedError,
    ConflictError,
    ProblemError,
    UnreachableError,
)

FIRST_PAUSE_SECONDS = 0.05
SOON_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 1.0
CANCEL, KEEP = "cancel", "keep"


def follow(
    job: Job,
    console: Console,
    on_event: Callable[[Event], object] | None = None,
    output: Path | None = None,
) -> None:
    """Show a job's stages until it ends. After Ctrl-C, it keeps running unless the user cancels it.

    If the user ends only its search, go on until the library with the best schedules so far is there.

    Args:
        job: the job.
        console: where to show them.
        on_event: called with each event after it is shown.
        output: the folder that the command would unpack the bundle into, if any.
    """
    try:
        watch(job, console, on_event=on_event)
    except KeyboardInterrupt as interruption:
        keep_best = partial(job.cancel, keep_best=True) if job.document.request.can_keep_best else None
        if interrupted(job.id, job.cancel, interruption, keep_best, output):
            follow(job, console, on_event, output)
            return
        raise typer.Exit(interruption_status(interruption)) from None


def watch(
    job: Job,
    console: Console,
    while_queued: Callable[[QueuePlace], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> None:
    """Show a job's stages until it succeeds, fails or is cancelled.

    ``while_queued`` is called repeatedly with the job's place in the queue; an exception ends the wait.
    """
    print_lines(console, first_line(job.document))
    missing, searches = missing_worker(job.document), job.document.request.searches
    ended = suppress(CompilationFailedError, CompilationCancelledError)
    with ended, stage_view(console, missing, searches) as view:
        _wait_in_queue(job, view, while_queued)
        job.wait(on_event=view.show_event if on_event is None else _both(view.show_event, on_event))


def _both(first: Callable[[Event], object], second: Callable[[Event], object]) -> Callable[[Event], object]:
    def call(event: Event) -> None:
        first(event)
        second(event)

    return call


def first_line(compilation: Compilation) -> str:
    """The compilation's id, and what it waits for if no live worker can run it."""
    queue = compilation.queue
    waits = f": {place_line(queue)}" if queue and queue.waiting_for else ""
    return f"compilation {compilation.id}{waits}"


def missing_worker(compilation: Compilation) -> str | None:
    """What a queued compilation needs that no live worker has."""
    return compilation.queue.waiting_for if compilation.queue else None


def _wait_in_queue(job: Job, view: StageView, while_queued: Callable[[QueuePlace], object] | None) -> None:
    """Show a job's position until it leaves the queue; a job that starts at once shows none."""
    pause_seconds, outage = FIRST_PAUSE_SECONDS, Outage()
    while job.state is JobState.QUEUED:
        time.sleep(pause_seconds)
        with outage.tolerated():
            job.refresh()
        place = job.document.queue
        if place is not None and while_queued is not None:
            while_queued(place)
        if place is not None and pause_seconds > SOON_SECONDS:
            view.show_place(place)
        pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


def interrupted(
    name: str,
    cancel: Callable[[], object],
    interruption: KeyboardInterrupt,
    keep_best: Callable[[], object] | None = None,
    output: Path | None = None,
) -> bool:
    """On a terminal, offer to cancel, or to end only a search; a second Ctrl-C lets the job run.

    Args:
        name: the job's id.
        cancel: cancels it.
        interruption: what ended the wait.
        keep_best: ends its search and keeps the best so far; None if it cannot.
        output: the folder that the command would unpack the bundle into, if any.

    Returns:
        Whether the job's search ends and its result is still wanted.
    """
    answer = "" if isinstance(interruption, TerminatedError) else _wanted(keep_best is not None)
    if answer == KEEP and keep_best is not None:
        return bool(
            ask_to_cancel(name, keep_best, f"asked {name} to end its search and keep the best so far")
        )
    if answer == CANCEL:
        ask_to_cancel(name, cancel)
        return False
    print_lines(errors, *_still_running(name, keep_best is not None, output))
    return False


def _still_running(name: str, searches: bool, output: Path | None) -> Iterator[str]:
    """What a user can do with a job that this command no longer follows."""
    yield f"{name} is still running: `bessemer show --follow {name}`, `bessemer cancel {name}`"
    if searches:
        yield f"to end its search and keep the best so far: `bessemer cancel --keep-best {name}`"
    if output is not None:
        quoted = shlex.quote(str(output))
        yield f"{output} was not filled: `bessemer download {name} --output {quoted}` when it has ended"


def _wanted(searches: bool) -> str:
    """What the user wants: ``CANCEL``, ``KEEP``, or an empty text to let the job run."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    choices = "[y]es, [k]eep the best so far, [N]o: " if searches else "[y/N] "
    try:
        answer = errors.input(f"\nCancel the compilation? {choices}", markup=False).strip().lower()
    except (KeyboardInterrupt, EOFError):
        errors.print()
        return ""
    if answer in ("y", "yes"):
        return CANCEL
    return KEEP if searches and answer in ("k", "keep") else ""


@contextmanager
def cancel_on_interrupt(name: str, cancel: Callable[[], object]) -> Iterator[None]:
    """Cancel a job if the block is interrupted, because only the block needs its result.

    Raises:
        KeyboardInterrupt: the block was interrupted; the notes say whether the job was cancelled.
    """
    try:
        yield
    except KeyboardInterrupt as interruption:
        for line in ask_to_cancel(name, cancel):
            interruption.add_note(line)
        raise


def ask_to_cancel(name: str, cancel: Callable[[], object], done: str = "") -> tuple[str, ...]:
    """Cancel a job, then print and return the result; nothing if it had already ended."""
    try:
        cancel()
    except ConflictError:
        return ()
    except BessemerError as error:
        lines: tuple[str, ...] = (f"{name} was not cancelled:", *error_lines(error))
    else:
        lines = (done or f"asked to cancel {name}",)
    print_lines(errors, *lines)
    return lines


class NotTakenError(BessemerError):
    """No worker started the compilation, or no live worker can run it."""


@dataclass(frozen=True)
class QueueLimit:
    """The time limit of a compilation in the queue.

    Attributes:
        seconds: the limit. With None, the compilation waits for busy workers without limit, but fails at
            once if no live worker can run it.
        began: the start by the monotonic clock.
    """

    seconds: float | None
    began: float = field(default_factory=time.monotonic)

    def check(self, place: QueuePlace) -> None:
        """Raise ``NotTakenError`` if the limit is over, or if no live worker can run the compilation."""
        if self.seconds is None:
            if place.waiting_for is not None:
                raise NotTakenError(
                    f"no live worker can run this compilation: it waits for {place.waiting_for}\n→ Start "
                    "such a worker or choose another --target; `bessemer workers` lists live workers. If "
                    "workers start on demand, wait for one with --queue-timeout."
                )
            return
        if time.monotonic() - self.began >= self.seconds:
            turn = (
                f"it is number {place.position} in the queue; live workers that can run it: {place.workers}"
            )
            missing = f"it waits for {place.waiting_for}" if place.waiting_for else turn
            raise NotTakenError(
                f"no worker started this compilation within {self.seconds:g} s: {missing}\n"
                "→ Raise --queue-timeout, or start more workers."
            )


def print_missing_worker(client: Client, console: Console) -> None:
    """Print a note if no worker is alive: the job waits until one starts. A proxy may hide whether one is."""
    with suppress(UnreachableError, ProblemError):
        if not client.readiness().workers:
            print_lines(console, "queued, waiting for a live worker")
