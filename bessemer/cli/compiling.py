"""``bessemer compile``."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bessemer.bundle.manifest import REPORT
from bessemer.cli.cancelling import ask_to_cancel
from bessemer.cli.interrupts import TerminatedError
from bessemer.cli.options import (
    DimensionsOption,
    FieldsOption,
    InputsOption,
    LabelsOption,
    ModelArgument,
    NameOption,
    NoWaitOption,
    TargetOption,
    read_draft,
)
from bessemer.cli.output import (
    ExitStatus,
    JsonOption,
    UrlOption,
    connected,
    errors,
    interruption_status,
    print_json,
    problem_lines,
    results,
    show_lines,
    tell,
)
from bessemer.cli.preflight import show_preflight
from bessemer.cli.submitting import submitted
from bessemer.cli.timeline import place_line
from bessemer.cli.views import StageView, compilation_lines, other_method_lines, stage_view
from bessemer.client import Job
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.queue import QueuePlace
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.errors import (
    CompilationCancelledError,
    CompilationFailedError,
    InvalidArgumentError,
)

__all__ = ["compile_model", "follow", "watch"]

FIRST_PAUSE_SECONDS = 0.05
SOON_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 1.0


def compile_model(
    model: ModelArgument,
    target: TargetOption = None,
    inputs: InputsOption = None,
    dimensions: DimensionsOption = None,
    options: FieldsOption = None,
    name: NameOption = None,
    labels: LabelsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Unpack the bundle there: a new or empty folder.", file_okay=False),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Let --output be a folder that is not empty: the bundle's files replace those of the "
            "same names, and all others stay.",
        ),
    ] = False,
    json: JsonOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit, print the id and leave.")] = False,
    no_wait: NoWaitOption = False,
    url: UrlOption = None,
) -> None:
    """Compile a model for a target and wait for the verified library."""
    console = errors if json else results
    with connected(url) as client:
        draft = read_draft(target, inputs, options, labels, dimensions, name)
        if output is not None:
            _check_output(output, draft.request, force)
        if no_wait:
            client.require_worker(draft.request)
        job = submitted(client, model, draft, console)
        if detach:
            _print_detached(job, json)
            return
        follow(job, console)
        if output is not None and job.state is JobState.SUCCEEDED:
            job.download(output)
        _finish(job, console, output, json)


def _check_output(output: Path, request: CompilationRequest, force: bool) -> None:
    """Refuse what would fail or overwrite files after the compilation.

    Raises:
        InvalidArgumentError: the request makes no bundle, or the folder is not empty.
    """
    if not request.makes_bundle:
        raise InvalidArgumentError(f"--output needs a bundle, and stop_after={request.stop_after} makes none")
    if not force and output.is_dir() and any(output.iterdir()):
        detail = f"--output: {output} is not empty; choose another folder, or add --force to replace files"
        raise InvalidArgumentError(detail)


def _print_detached(job: Job, json: bool) -> None:
    if json:
        print_json(job.document)
    else:
        if missing_worker(job.document):
            tell(errors, first_line(job.document))
        typer.echo(job.id)
        tell(errors, f"`bessemer show --follow {job.id}` shows how it goes on")


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


def _finish(job: Job, console: Console, output: Path | None, json: bool) -> None:
    if json:
        print_json(job.document)
    else:
        tell(console, *compilation_lines(job.document))
    if job.document.problem:
        show_lines(errors, problem_lines(job.document.problem))
    preflight = job.document.request.stop_after is Stage.TRANSLATE
    if not json and not preflight and any(file.name == REPORT for file in job.document.artifacts):
        tell(console, *other_method_lines(job.report().other_methods))
    if output is not None and job.state is JobState.SUCCEEDED:
        tell(console, f"bundle      {output}")
    if job.state is not JobState.SUCCEEDED:
        raise typer.Exit(ExitStatus.FAILED)
    if preflight:
        show_preflight(job.report(), quiet=json)
