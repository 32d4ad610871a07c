"""``bessemer check``: find out in seconds whether a model would compile."""

from collections.abc import Iterator

import typer

from bessemer.cli.arguments import (
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
    aligned,
    connected,
    errors,
    print_json,
    print_lines,
    problem_lines,
    results,
    show_lines,
    shown_bytes,
)
from bessemer.cli.submitting import submitted
from bessemer.cli.views import other_method_lines
from bessemer.cli.waiting import follow
from bessemer.client import Job
from bessemer.contract.job import JobState
from bessemer.contract.preflight import OperatorUse, Preflight
from bessemer.contract.report import Report
from bessemer.contract.stage import Stage

SHOWN_OPERATORS = 30


def check(
    model: ModelArgument,
    target: TargetOption = None,
    inputs: InputsOption = None,
    dimensions: DimensionsOption = None,
    options: FieldsOption = None,
    name: NameOption = None,
    labels: LabelsOption = None,
    json: JsonOption = False,
    no_wait: NoWaitOption = False,
    url: UrlOption = None,
) -> None:
    """Check in seconds whether a model would compile, and list its operators; exit with 1 if it would not.

    With --json, print the report, whose `preflight` holds the result.
    """
    console = errors if json else results
    with connected(url) as client:
        draft = read_draft(target, inputs, options, labels, dimensions, name).until(Stage.TRANSLATE)
        if no_wait:
            client.require_worker(draft.request)
        job = submitted(client, model, draft, console)
        follow(job, console)
        _finish(job, json)


def _finish(job: Job, json: bool) -> None:
    if job.state is not JobState.SUCCEEDED:
        if json:
            print_json(job.document)
        if job.document.problem:
            show_lines(errors, problem_lines(job.document.problem))
        raise typer.Exit(ExitStatus.FAILED)
    report = job.report()
    if json:
        print_json(report)
    show_preflight(report, quiet=json)


def show_preflight(report: Report, quiet: bool) -> None:
    """Print the result of a preflight; if ``quiet``, print only its problems, on standard error.

    Raises:
        typer.Exit: with status 1, if the model would not compile.
    """
    found = report.preflight
    if found is None:
        return
    if not quiet:
        print_lines(results, *preflight_lines(found), *other_method_lines(report.other_methods))
    for problem in found.problems:
        show_lines(errors, problem_lines(problem))
    if not found.compiles:
        raise typer.Exit(ExitStatus.FAILED)


def preflight_lines(found: Preflight) -> Iterator[str]:
    """The lines of a preflight, without its problems."""
    yield f"translates  {'yes' if found.compiles else 'no'}"
    yield f"parameters  {found.parameters:,} ({shown_bytes(found.parameter_bytes)})"
    yield f"work        {found.flops:,} floating-point operations in products and convolutions"
    yield f"activations {shown_bytes(found.peak_activation_bytes)} at most, before fusion"
    shown = sorted(found.operators, key=lambda use: use.supported)[:SHOWN_OPERATORS]
    yield from aligned([("operator", "calls", "flops", ""), *map(_row, shown)])
    if len(found.operators) > SHOWN_OPERATORS:
        yield f"and {len(found.operators) - SHOWN_OPERATORS} more operators; --json lists all"


def _row(use: OperatorUse) -> tuple[str, ...]:
    flops = f"{use.flops:,}" if use.flops else ""
    return use.name, str(use.calls), flops, "" if use.supported else "UNSUPPORTED"
