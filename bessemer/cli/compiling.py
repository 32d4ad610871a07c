"""``bessemer compile`` and ``bessemer check``."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bessemer.bundle.manifest import REPORT
from bessemer.cli.arguments import (
    ConstantsOption,
    DeviceOption,
    DimensionsOption,
    Draft,
    EntriesOption,
    ExtensionsOption,
    FieldsOption,
    InputsOption,
    LabelsOption,
    ModelArgument,
    NameOption,
    NoWaitOption,
    RecordsOption,
    ReferenceOption,
    SchedulesOption,
    TargetOption,
    TargetsOption,
    WeightsOption,
    read_draft,
)
from bessemer.cli.best_bundle import BestBundle
from bessemer.cli.groups import download_group, exit_unless_succeeded, follow_group, show_group
from bessemer.cli.live_view import compilation_lines, other_method_lines
from bessemer.cli.model_argument import submitted, submitted_group
from bessemer.cli.output import (
    ExitStatus,
    JsonOption,
    UrlOption,
    aligned,
    connected,
    errors,
    failure_status,
    print_json,
    print_lines,
    problem_lines,
    results,
    show_lines,
    shown_bytes,
)
from bessemer.cli.waiting import first_line, follow, missing_worker
from bessemer.client import Client, Job
from bessemer.client.ir_modules import Beside
from bessemer.contract.dynamic import shown_shape, shown_sizes
from bessemer.contract.job import JobState
from bessemer.contract.report import EntryReport, OperatorUse, Preflight, Report
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.errors import InvalidArgumentError

SHOWN_OPERATORS = 30
NO_RULE = "no operator needs a translation rule that you could write"


def compile_model(
    model: ModelArgument,
    target: TargetsOption = None,
    inputs: InputsOption = None,
    dimensions: DimensionsOption = None,
    constants: ConstantsOption = None,
    entries: EntriesOption = None,
    weights: WeightsOption = None,
    reference: ReferenceOption = None,
    extensions: ExtensionsOption = None,
    schedules: SchedulesOption = None,
    records: RecordsOption = None,
    options: FieldsOption = None,
    device: DeviceOption = None,
    name: NameOption = None,
    labels: LabelsOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Unpack the bundle into this new or empty directory; with several targets, each into a "
            "directory in it.",
            file_okay=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Allow a nonempty --output directory: replace files of the same names and keep the rest.",
        ),
    ] = False,
    follow_best: Annotated[
        bool,
        typer.Option(
            "--follow-best",
            help="With --output: unpack the bundle as soon as it is verified, before it is measured, and "
            "replace it with each better one that a search finds. Sets tune.publish_early.",
        ),
    ] = False,
    json: JsonOption = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit, print the id and exit.")] = False,
    no_wait: NoWaitOption = False,
    url: UrlOption = None,
) -> None:
    """Compile a model for a target or for several, and wait for the verified libraries."""
    console = errors if json else results
    with connected(url) as client:
        beside = Beside(weights, reference)
        draft = read_draft(
            target,
            inputs,
            [
                *(options or ()),
                *(() if device is None else (f"device={device}",)),
                *(("tune.publish_early=true",) if follow_best else ()),
            ],
            labels,
            dimensions,
            name,
            constants,
            entries,
            beside,
            extensions,
            schedules,
        )
        draft = replace(draft, records=records)
        if detach and output is not None:
            raise InvalidArgumentError(
                "--detach does not wait for a bundle: leave out --output, and fetch it with "
                "`bessemer download ID --output DIR`"
            )
        if follow_best and (output is None or draft.targets or detach):
            raise InvalidArgumentError("--follow-best needs --output, one target, and no --detach")
        if output is not None:
            _check_output(output, draft.request, force)
        if draft.targets:
            _compile_group(client, model, draft, output, json, detach, no_wait)
            return
        if no_wait:
            client.require_worker(draft.request)
        job = submitted(client, model, draft, console)
        page = f"{client.console}/compilations/{job.id}"
        if detach:
            _print_detached(job, page, json)
            return
        if not json:
            print_lines(console, f"console {page}")
        best = BestBundle(job, output, console) if follow_best and output is not None else None
        follow(job, console, None if best is None else best.on_event, output if best is None else None)
        if best is not None:
            best.explain_absence()
        if output is not None and job.state is JobState.SUCCEEDED:
            job.download(output)
        _finish(job, console, output, json)


def _compile_group(
    client: Client,
    model: str,
    draft: Draft,
    output: Path | None,
    json: bool,
    detach: bool,
    no_wait: bool,
) -> None:
    console = errors if json else results
    if no_wait:
        for target in draft.targets:
            client.require_worker(draft.request.model_copy(update={"target": target}))
    group = submitted_group(client, model, draft, console)
    page = f"{client.console}/compare?group={group.id}"
    if detach:
        if json:
            print_json(group.document)
        else:
            typer.echo(group.id)
            _print_how_to_follow(group.id, page)
        return
    if not json:
        print_lines(console, f"console {page}")
    follow_group(group, console)
    if output is not None:
        for path in download_group(group, output):
            print_lines(console, f"bundle {path}")
    show_group(group, json)
    exit_unless_succeeded(group.document)


def _check_output(output: Path, request: CompilationRequest, force: bool) -> None:
    """Check before compiling that the bundle can be unpacked."""
    if not request.makes_bundle:
        raise InvalidArgumentError(
            f"--output needs a bundle, but stop_after={request.stop_after} produces none"
        )
    if not force and output.is_dir() and any(output.iterdir()):
        detail = f"--output: {output} is not empty; choose another directory, or add --force to replace files"
        raise InvalidArgumentError(detail)


def _print_how_to_follow(job_id: str, page: str) -> None:
    print_lines(errors, f"to follow it, run `bessemer show --follow {job_id}` or open {page}")


def _print_detached(job: Job, page: str, json: bool) -> None:
    if json:
        print_json(job.document)
    else:
        if missing_worker(job.document):
            print_lines(errors, first_line(job.document))
        typer.echo(job.id)
        _print_how_to_follow(job.id, page)


def _finish(job: Job, console: Console, output: Path | None, json: bool) -> None:
    if json:
        print_json(job.document)
    else:
        print_lines(console, *compilation_lines(job.document))
    if job.document.problem:
        show_lines(errors, problem_lines(job.document.problem))
    preflight = job.document.request.stop_after is Stage.TRANSLATE
    if not json and not preflight and any(file.name == REPORT for file in job.document.artifacts):
        print_lines(console, *other_method_lines(job.report().other_methods))
    if output is not None and job.state is JobState.SUCCEEDED:
        print_lines(console, f"bundle      {output}")
    if job.state is not JobState.SUCCEEDED:
        raise typer.Exit(failure_status(job.document.problem))
    if preflight:
        show_preflight(job.report(), quiet=json)


def check(
    model: ModelArgument,
    target: TargetOption = None,
    inputs: InputsOption = None,
    dimensions: DimensionsOption = None,
    constants: ConstantsOption = None,
    entries: EntriesOption = None,
    weights: WeightsOption = None,
    reference: ReferenceOption = None,
    extensions: ExtensionsOption = None,
    options: FieldsOption = None,
    name: NameOption = None,
    labels: LabelsOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print translation rules to fill in for unsupported operators.")
    ] = False,
    json: JsonOption = False,
    no_wait: NoWaitOption = False,
    url: UrlOption = None,
) -> None:
    """Check in seconds whether a model would compile, and list its inputs, outputs, state and operators.

    Exits with 1 if it would not.

    With --json, print the report, whose `preflight` holds the result.
    """
    console = errors if json else results
    with connected(url) as client:
        beside = Beside(weights, reference)
        draft = read_draft(
            target, inputs, options, labels, dimensions, name, constants, entries, beside, extensions
        )
        draft = draft.until(Stage.TRANSLATE)
        if no_wait:
            client.require_worker(draft.request)
        job = submitted(client, model, draft, console)
        if not json:
            print_lines(console, f"console {client.console}/compilations/{job.id}")
        follow(job, console)
        _finish_check(job, json, explain)


def _finish_check(job: Job, json: bool, explain: bool) -> None:
    if job.state is not JobState.SUCCEEDED:
        if json:
            print_json(job.document)
        if job.document.problem:
            show_lines(errors, problem_lines(job.document.problem))
        raise typer.Exit(failure_status(job.document.problem))
    report = job.report()
    if json:
        print_json(report)
    show_preflight(report, quiet=json, explain=explain)


def show_preflight(report: Report, quiet: bool, explain: bool = False) -> None:
    """Print a preflight, or if ``quiet`` its problems; exit with 1 if the model would not compile.

    Args:
        report: the report with the preflight.
        quiet: print only problems.
        explain: print the rules to fill in as well.
    """
    found = report.preflight
    if found is None:
        return
    if not quiet:
        print_lines(
            results,
            *signature_lines(report),
            *preflight_lines(found),
            *other_method_lines(report.other_methods),
        )
    for problem in found.problems:
        show_lines(errors, problem_lines(problem))
    if explain:
        print_lines(errors, *(found.rule_template.splitlines() or (NO_RULE,)))
    if not found.compiles:
        raise typer.Exit(ExitStatus.FAILED)


def signature_lines(report: Report) -> Iterator[str]:
    """What the library of each entry point would take, keep and return."""
    points: list[tuple[str, Report | EntryReport]] = [(next(iter(report.request.entries), ""), report)]
    points += [(entry.name, entry) for entry in report.entries]
    for name, each in points:
        if name:
            yield f"entry       {name}"
        for spec in each.inputs:
            note = ", the seed of its random numbers" if spec.name == each.seed else ""
            yield f"input       {shown_shape(spec, each.dynamic.inputs)}{note}"
        yield from (f"state       {spec}" for spec in each.state)
        yield from (f"output      {shown_shape(spec, each.dynamic.outputs)}" for spec in each.outputs)
        yield from (f"dynamic     {dimension}" for dimension in each.dynamic.dimensions)
        yield from (f"dynamic     {size}, which depends on data" for size in each.dynamic.of_data)


def preflight_lines(found: Preflight) -> Iterator[str]:
    """The lines of a preflight, without its problems."""
    yield f"translates  {'yes' if found.compiles else 'no'}"
    yield f"parameters  {found.parameters:,} ({shown_bytes(found.parameter_bytes)})"
    at = f", {shown_sizes(found.sizes)}" if found.sizes else ""
    if found.flops is not None:
        yield f"work        {found.flops:,} floating-point operations in products and convolutions{at}"
    if found.peak_activation_bytes is not None:
        yield f"activations {shown_bytes(found.peak_activation_bytes)} at most, before fusion{at}"
    shown = sorted(found.operators, key=lambda use: use.supported)[:SHOWN_OPERATORS]
    yield from aligned([("operator", "calls", "flops", ""), *map(_operator_row, shown)])
    if len(found.operators) > SHOWN_OPERATORS:
        yield f"and {len(found.operators) - SHOWN_OPERATORS} more operators; --json lists all"


def _operator_row(use: OperatorUse) -> tuple[str, ...]:
    flops = f"{use.flops:,}" if use.flops else ""
    return use.name, str(use.calls), flops, "" if use.supported else "UNSUPPORTED"
