"""Follow and show groups: the compilations of a model for several targets."""

import time
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from bessemer.cli.output import (
    aligned,
    clean,
    errors,
    interruption_status,
    joint_status,
    print_json,
    print_lines,
    problem_lines,
    results,
    show_lines,
    shown_bytes,
)
from bessemer.cli.timeline import place_line, shown_progress
from bessemer.cli.waiting import interrupted
from bessemer.client import Group
from bessemer.client.outages import Outage
from bessemer.contract.group import Comparison, TargetResult, shown_target
from bessemer.contract.group import Group as GroupDocument
from bessemer.contract.job import Compilation, JobState

HEADINGS = ("target", "result", "p50", "fastest baseline", "library", "error", "compilation")
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 1.0


def follow_group(group: Group, console: Console) -> None:
    """Show a group until all its compilations end. After Ctrl-C, they run on unless the user cancels."""
    print_lines(console, f"group {group.id}: {len(group.document.items)} compilations")
    try:
        _watch(group, console)
    except KeyboardInterrupt as interruption:
        interrupted(group.id, group.cancel, interruption)
        raise typer.Exit(interruption_status(interruption)) from None


def show_group(group: Group, json: bool) -> None:
    """Print the results of a group, and the problems of compilations that failed."""
    if json:
        print_json(group.document)
    else:
        print_lines(results, *group_lines(group.document, group.compare()))
    for job in group.document.items:
        if job.problem is not None:
            print_lines(errors, f"{shown_target(job.request.target)}:")
            show_lines(errors, problem_lines(job.problem))


def exit_unless_succeeded(group: GroupDocument) -> None:
    """Exit with the status of the compilations that failed, if any did."""
    failed = [job.problem for job in group.items if job.state is not JobState.SUCCEEDED]
    if failed:
        raise typer.Exit(joint_status(failed))


def group_lines(document: GroupDocument, comparison: Comparison) -> Iterator[str]:
    """A group and its results, one line for each target."""
    yield f"group {document.id}: {document.state}"
    if document.name:
        yield f"name  {document.name}"
    yield f"model {document.model}"
    yield from aligned([HEADINGS, *map(_result_row, comparison.items)])


def download_group(group: Group, output: Path) -> Iterator[Path]:
    """Unpack the bundles of compilations that succeeded, each into a directory with its target's name."""
    for job in group.jobs:
        if job.state is JobState.SUCCEEDED:
            yield job.download(output / directory_of(job.document))


def directory_of(document: Compilation) -> str:
    """The name of a compilation's directory: its target's, such as ``aarch64`` or ``znver4-4-cores``."""
    return shown_target(document.request.target).replace(", ", "-").replace(" ", "-")


def _watch(group: Group, console: Console) -> None:
    pause_seconds, outage = FIRST_PAUSE_SECONDS, Outage()
    ended: set[str] = set()
    with Live(console=console, auto_refresh=False, transient=True) as view:
        while True:
            for job in group.document.items:
                if job.state.final and job.id not in ended:
                    ended.add(job.id)
                    print_lines(console, f"{shown_target(job.request.target)}: {job.state}")
            if group.state.final:
                break
            if console.is_terminal:
                rows = [_progress_row(job) for job in group.document.items if not job.state.final]
                view.update(Text("\n".join(map(clean, aligned(rows)))), refresh=True)
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            with outage.tolerated():
                group.refresh()


def _progress_row(job: Compilation) -> tuple[str, str]:
    if job.queue is not None:
        return shown_target(job.request.target), place_line(job.queue)
    progress = f" {shown_progress(job.progress)}" if job.progress else ""
    return shown_target(job.request.target), f"{job.stage or job.state}{progress}"


def _result_row(one: TargetResult) -> tuple[str, ...]:
    peer = one.peer
    compared = ""
    if peer is not None:
        ratio = "unsteady" if peer.doubt or one.unsteady else f"library / {peer.name}: {peer.ratio:.2g}"
        compared = f"{peer.latency.p50_ms:.4g} ms ({ratio})"
    return (
        one.target,
        one.outcome,
        "" if one.latency is None else f"{one.latency.p50_ms:.4g} ms",
        compared,
        "" if one.library_bytes is None else shown_bytes(one.library_bytes),
        "" if one.max_absolute_error is None else f"{one.max_absolute_error:.3g}",
        one.id,
    )
