"""``bessemer check``: what would not compile, in seconds."""

import typer

from bessemer.cli.compiling import follow
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
    print_json,
    problem_lines,
    results,
    show_lines,
)
from bessemer.cli.preflight import show_preflight
from bessemer.cli.submitting import submitted
from bessemer.client import Job
from bessemer.contract.job import JobState
from bessemer.contract.stage import Stage

__all__ = ["check"]


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
    """Say in seconds whether a model would compile, and what it consists of; status 1 where it would not.

    With --json it prints the report, whose `preflight` has the findings.
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
