"""``bessemer ir``."""

from collections.abc import Iterator
from typing import Annotated

import typer

from bessemer.cli.jobs import IdArgument
from bessemer.cli.output import JsonOption, UrlOption, aligned, connected, print_json, results, tell
from bessemer.contract.ir import IrListing, IrStep
from bessemer.errors import InvalidArgumentError

__all__ = ["ir", "step_lines"]

HEADINGS = ("step", "stage", "phase", "pass", "ms", "functions", "kernels", "operators", "calls", "loops", "")


def ir(
    job_id: IdArgument,
    step: Annotated[
        str | None, typer.Argument(metavar="STEP", help="A step's number or name, from the list.")
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="What the step changed, not all of it.")] = False,
    json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """List the snapshots that a compilation took of its module, or print one of them.

    They are taken where the compilation was asked for with --option inspect.ir=true.
    """
    with connected(url) as client:
        if step is None:
            if diff:
                raise InvalidArgumentError("--diff needs a step: bessemer ir ID STEP --diff")
            _list(client.job(job_id).ir(), json)
            return
        if json:
            raise InvalidArgumentError("--json is of the list: leave the step out")
        job = client.job(job_id)
        _show(job.ir_diff(step) if diff else job.ir_text(step))


def _show(text: str) -> None:
    """A module as it is; on a terminal without what could steer it."""
    if results.is_terminal:
        tell(results, *text.splitlines())
    else:
        typer.echo(text, nl=False)


def step_lines(listing: IrListing) -> Iterator[str]:
    """The snapshots for a person."""
    return aligned([HEADINGS, *map(_row, listing.items)])


def _list(listing: IrListing, json: bool) -> None:
    if json:
        print_json(listing)
        return
    tell(results, *step_lines(listing))


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
