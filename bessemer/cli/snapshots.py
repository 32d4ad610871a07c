"""``bessemer ir``: list and print snapshots of the module."""

from collections.abc import Iterator
from typing import Annotated

import typer

from bessemer.cli.jobs import IdArgument
from bessemer.cli.output import JsonOption, UrlOption, aligned, connected, print_json, print_lines, results
from bessemer.contract.ir import IrListing, IrStep
from bessemer.errors import InvalidArgumentError

HEADINGS = ("step", "stage", "phase", "pass", "ms", "functions", "kernels", "operators", "calls", "loops", "")


def ir(
    job_id: IdArgument,
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="Number or name of a step in the list.")
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="Print the step's changes instead of the whole module.")
    ] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List a compilation's snapshots of the module, or print one of them.

    Compile with --option inspect.ir=true to take snapshots.
    """
    with connected(url) as client:
        if step is None:
            if diff:
                raise InvalidArgumentError("--diff needs a step: bessemer ir ID STEP --diff")
            _list(client.job(job_id).ir(), json)
            return
        if json:
            raise InvalidArgumentError("--json works only for the list; remove the step")
        job = client.job(job_id)
        _show(job.ir_diff(step) if diff else job.ir_text(step))


def _show(text: str) -> None:
    """Print a module unchanged; on a terminal, without control characters."""
    if results.is_terminal:
        print_lines(results, *text.splitlines())
    else:
        typer.echo(text, nl=False)


def step_lines(listing: IrListing) -> Iterator[str]:
    """The table of snapshots."""
    return aligned([HEADINGS, *map(_row, listing.items)])


def _list(listing: IrListing, json: bool) -> None:
    if json:
        print_json(listing)
        return
    print_lines(results, *step_lines(listing))


def _row(step: IrStep) -> tuple[str, ...]:
    counts = step.counts
    figures = (counts.functions, counts.kernels, counts.operators, counts.calls, counts.loops)
    milliseconds = f"{step.seconds * 1e3:.1f}"
    note = "" if step.changed else "unchanged"
    return (
        str(step.step),
        step.stage.value,
        step.phase,
        step.name,
        milliseconds,
        *map(str, figures),
        note,
    )
