"""``bessemer gate``: a pipeline's step that fails where a model gets slower, larger or wrong."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from bessemer.cli.cancelling import cancelled_if_interrupted
from bessemer.cli.compiling import watch
from bessemer.cli.gate_files import GateFiles
from bessemer.cli.options import MODEL_HELP, read_draft
from bessemer.cli.output import (
    ExitStatus,
    UrlOption,
    errors,
    problem_lines,
    reporting,
    results,
    show_lines,
    tell,
)
from bessemer.cli.submitting import submitted
from bessemer.client import Client
from bessemer.contract.job import JobState
from bessemer.contract.options import Baseline
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.errors import InvalidArgumentError
from bessemer.gate.policy import Bounds, Outcome, Verdict, judge
from bessemer.gate.summary import complaints

__all__ = ["STATUSES", "gate"]

STATUSES = {
    Verdict.PASSED: ExitStatus.SUCCEEDED,
    Verdict.FAILED: ExitStatus.FAILED,
    Verdict.WRONG: ExitStatus.WRONG,
    Verdict.SLOWER: ExitStatus.SLOWER,
    Verdict.LARGER: ExitStatus.LARGER,
    Verdict.UNSTEADY: ExitStatus.UNSTEADY,
}
PREFIX = "BESSEMER_GATE"


def gate(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            envvar=f"{PREFIX}_MODEL",
            help=MODEL_HELP,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", envvar=f"{PREFIX}_TARGET", help="By default the worker's own."),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=1x3x224x224:float32",
            envvar=f"{PREFIX}_INPUTS",
            help="Once for each input; a .pt2 has its own.",
        ),
    ] = None,
    dimensions: Annotated[
        list[str] | None,
        typer.Option(
            "--dimension",
            metavar="NAME=1..64",
            envvar=f"{PREFIX}_DIMENSIONS",
            help="The range of a size that an input names.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", envvar=f"{PREFIX}_OPTIONS", help="As for compile."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", envvar=f"{PREFIX}_NAME", help="As for compile."),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", envvar=f"{PREFIX}_LABELS", help="As for compile."),
    ] = None,
    max_latency_ratio: Annotated[
        float | None,
        typer.Option(min=0, envvar=f"{PREFIX}_MAX_LATENCY_RATIO", help="Latency, torch eager's being 1."),
    ] = None,
    max_library_bytes: Annotated[
        int | None, typer.Option(min=0, envvar=f"{PREFIX}_MAX_LIBRARY_BYTES", help="Size of model.so.")
    ] = None,
    max_regress_percent: Annotated[
        float | None,
        typer.Option(
            min=0,
            envvar=f"{PREFIX}_MAX_REGRESS_PERCENT",
            help="How much larger than in the report of --compare the latency ratio and the size may be.",
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT.json",
            envvar=f"{PREFIX}_COMPARE",
            help="An earlier report. Where it does not exist, nothing is compared, and the summary says so.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="REPORT.json", envvar=f"{PREFIX}_REPORT", help="Write this run's report there."),
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            envvar=[f"{PREFIX}_SUMMARY", "GITHUB_STEP_SUMMARY"],
            help="Append a summary in Markdown.",
        ),
    ] = None,
    junit_file: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE.xml", envvar=f"{PREFIX}_JUNIT", help="Write a JUnit report."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", envvar=f"{PREFIX}_OUTPUT", help="Unpack the bundle there.", file_okay=False
        ),
    ] = None,
    url: UrlOption = None,
) -> None:
    """Compile a model; the status: wrong (4), slower (5), larger (6), too unsteady to say (7)."""
    bounds = Bounds(max_latency_ratio, max_library_bytes, max_regress_percent)
    files = GateFiles(report, summary, junit_file)
    with reporting(), files.telling_errors(model), Client(url) as client:
        draft = read_draft(target, inputs, options, labels, dimensions, name)
        _require_figures(draft.request, bounds)
        previous, notes = _read_report(compare)
        job = submitted(client, model, draft, results)
        with cancelled_if_interrupted(job.id, job.cancel):
            watch(job, results)
        found = job.report() if job.state is JobState.SUCCEEDED else None
        outcome = judge(model, job.document, found, previous, bounds, notes)
        files.write(outcome)
        if output is not None and job.state is JobState.SUCCEEDED:
            job.download(output)
        _tell(outcome)
    raise typer.Exit(STATUSES[outcome.verdict])


def _require_figures(request: CompilationRequest, bounds: Bounds) -> None:
    """Refuse a request that would measure nothing of what is bounded.

    Raises:
        InvalidArgumentError: it stops early, or leaves torch eager out.
    """
    if not request.makes_bundle:
        raise InvalidArgumentError("a gate needs a whole compilation: leave stop_after out")
    by_latency = bounds.latency_ratio is not None or bounds.regress_percent is not None
    if by_latency and Baseline.TORCH_EAGER not in request.benchmark.baselines:
        raise InvalidArgumentError(f"latency is judged by {Baseline.TORCH_EAGER}: name it in the baselines")


def _read_report(path: Path | None) -> tuple[Report | None, tuple[str, ...]]:
    """An earlier report; without one, why. A branch's first run has none, and a new release may read none."""
    if path is None:
        return None, ()
    if not path.exists():
        return None, (f"there is no earlier report at {path}: nothing was compared",)
    try:
        return Report.read_json(path.read_bytes()), ()
    except ValidationError as error:
        return None, (
            f"{path} is no report of this release ({error.errors()[0]['msg']}): nothing was compared",
        )


def _tell(outcome: Outcome) -> None:
    for measure in outcome.measures:
        change = measure.change_percent
        compared = "" if change is None else f" ({change:+.1f} %)"
        tell(results, f"{measure.name}: {measure.shown(measure.now)}{compared}")
    if outcome.document.problem is not None:
        show_lines(errors, problem_lines(outcome.document.problem))
        return
    tell(errors, *outcome.notes, *complaints(outcome))
