"""``bessemer gate``: a pipeline step that fails if a model gets slower, larger or wrong."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from bessemer.cli.arguments import (
    ConstantsOption,
    EntriesOption,
    ExtensionsOption,
    InputsOption,
    ModelArgument,
    ReferenceOption,
    WeightsOption,
    read_bytes,
    read_draft,
)
from bessemer.cli.gate_files import (
    VARIABLE_PREFIX,
    Expected,
    GateFiles,
    annotate,
    keep_reference,
    reference_of,
)
from bessemer.cli.model_argument import submitted
from bessemer.cli.output import (
    ExitStatus,
    UrlOption,
    errors,
    print_lines,
    problem_lines,
    reporting,
    results,
    show_lines,
)
from bessemer.cli.waiting import NotTakenError, QueueLimit, ask_to_cancel, cancel_on_interrupt, watch
from bessemer.client import Client, Job
from bessemer.client.ir_modules import Beside
from bessemer.contract.error_words import in_words
from bessemer.contract.job import JobState
from bessemer.contract.options import Baseline
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest
from bessemer.errors import InvalidArgumentError
from bessemer.gate.policy import (
    WARN_OUTPUT_PERCENT,
    Bounds,
    Measure,
    Outcome,
    Verdict,
    first_entry,
    judge,
    should_repeat,
    uncompared,
    unfit_as_base,
    without_base,
)
from bessemer.gate.summary import complaints, passed_line, shown_change

STATUSES = {
    Verdict.PASSED: ExitStatus.SUCCEEDED,
    Verdict.FAILED: ExitStatus.FAILED,
    Verdict.WRONG: ExitStatus.WRONG,
    Verdict.SLOWER: ExitStatus.SLOWER,
    Verdict.LARGER: ExitStatus.LARGER,
    Verdict.UNSTEADY: ExitStatus.UNSTEADY,
}

TargetOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Target to compile for; see `bessemer compile`.")
]
RangesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dimension", metavar="NAME=1..64", help="Range of a size that an --input or the file names."
    ),
]
FieldsOption = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="See `bessemer compile`.")
]
NameOption = Annotated[str | None, typer.Option(metavar="NAME", help="See `bessemer compile`.")]
LabelsOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="See `bessemer compile`.")
]
MaxLatencyRatioOption = Annotated[
    float | None, typer.Option(min=0, help="Maximum latency relative to torch eager.")
]
MaxLatencyOption = Annotated[
    float | None, typer.Option(min=0, help="Maximum median latency in milliseconds.")
]
MaxMemoryOption = Annotated[
    int | None,
    typer.Option(
        parser=read_bytes,
        metavar="SIZE",
        help="Maximum memory for loading and running the library, such as 64MiB; or bytes.",
    ),
]
MaxSizeOption = Annotated[
    int | None,
    typer.Option(
        "--max-size",
        "--max-library-bytes",
        parser=read_bytes,
        metavar="SIZE",
        envvar=[f"{VARIABLE_PREFIX}MAX_SIZE", f"{VARIABLE_PREFIX}MAX_LIBRARY_BYTES"],
        help="Maximum size of model.so, such as 2MiB; or bytes.",
    ),
]
MaxRegressOption = Annotated[
    float | None,
    typer.Option(
        min=0, help="Maximum growth of latency (ratio and milliseconds), memory and size over --compare."
    ),
]
MaxOutputChangeOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="PERCENT",
        help="Maximum change of the outputs on the inputs of --compare, or of --golden "
        f"(where it defaults to {WARN_OUTPUT_PERCENT:g}).",
    ),
]
GoldenOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="Run the inputs/NAME arrays of this file, and compare with its outputs/NAME arrays.",
    ),
]
CompareOption = Annotated[
    Path | None,
    typer.Option(
        metavar="REPORT.json",
        help="Base to compare with: an earlier --report, with the .npz beside it.",
    ),
]
AllowMissingBaseOption = Annotated[
    bool,
    typer.Option(
        "--allow-missing-base",
        help="Only warn if the base is missing, as in a first run.",
    ),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        metavar="REPORT.json",
        help="Write this run's report, with its inputs and outputs beside it as .npz.",
    ),
]
SummaryOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.md",
        envvar=[f"{VARIABLE_PREFIX}SUMMARY", "GITHUB_STEP_SUMMARY"],
        help="Append a Markdown summary.",
    ),
]
JunitOption = Annotated[Path | None, typer.Option(metavar="FILE.xml", help="Write a JUnit report.")]
OutputOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Unpack the bundle there.", file_okay=False)
]
QueueTimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="Fail unless a worker starts the compilation within this time. By default, the gate waits "
        "for busy workers, but fails at once if no live worker can run it.",
    ),
]
RetriesOption = Annotated[
    int,
    typer.Option(
        "--repeat-unsteady",
        min=0,
        max=10,
        help="How often to compile and measure again if the result is unsteady.",
    ),
]


def gate(
    model: ModelArgument,
    target: TargetOption = None,
    inputs: InputsOption = None,
    dimensions: RangesOption = None,
    constants: ConstantsOption = None,
    entries: EntriesOption = None,
    weights: WeightsOption = None,
    reference: ReferenceOption = None,
    extensions: ExtensionsOption = None,
    options: FieldsOption = None,
    name: NameOption = None,
    labels: LabelsOption = None,
    max_latency_ratio: MaxLatencyRatioOption = None,
    max_latency_ms: MaxLatencyOption = None,
    max_memory: MaxMemoryOption = None,
    max_size: MaxSizeOption = None,
    max_regress_percent: MaxRegressOption = None,
    max_output_change: MaxOutputChangeOption = None,
    golden: GoldenOption = None,
    compare: CompareOption = None,
    allow_missing_base: AllowMissingBaseOption = False,
    report: ReportOption = None,
    summary: SummaryOption = None,
    junit: JunitOption = None,
    output: OutputOption = None,
    queue_timeout: QueueTimeoutOption = None,
    retries: RetriesOption = 1,
    url: UrlOption = None,
) -> None:
    """Compile a model and judge it. Exit status: wrong (4), slower (5), larger (6), inconclusive (7)."""
    if max_output_change is None and golden is not None:
        max_output_change = WARN_OUTPUT_PERCENT
    bounds = Bounds(
        max_latency_ratio, max_latency_ms, max_size, max_memory, max_regress_percent, max_output_change
    )
    files = GateFiles(report, summary, junit)
    with reporting(), files.reporting_errors(model), Client(url) as client:
        beside = Beside(weights, reference)
        files = replace(files, console=client.console)
        draft = read_draft(
            target, inputs, options, labels, dimensions, name, constants, entries, beside, extensions
        ).measured_again()
        _require_figures(draft.request, bounds)
        base = _read_base(compare, golden)
        _require_base(base, bounds, allow_missing_base)
        for left in reversed(range(retries + 1)):
            job = submitted(client, model, draft, results)
            _require_common_entry(job, base, bounds)
            _wait(job, queue_timeout)
            outcome = _judged(model, job, base, bounds)
            if not left or not should_repeat(outcome, base.report, makes_base=report is not None):
                break
            print_lines(errors, "the measurement was unsteady: measuring again")
        files = replace(files, report=_new_base(job, outcome, base, report, compare))
        files.write(outcome)
        if output is not None and job.state is JobState.SUCCEEDED:
            job.download(output)
        _print_outcome(outcome)
    raise typer.Exit(STATUSES[outcome.verdict])


@dataclass(frozen=True)
class Base:
    """The base of the comparison.

    Attributes:
        report: its report; None if it is missing or unreadable.
        expected: the outputs to compare with, which may be a golden file's; None if they are missing.
        notes: why the report or the outputs are missing.
        is_missing: whether the report's file does not exist.
        is_unreadable: whether it exists but cannot be read.
        is_damaged: whether it is unreadable for every release: it is not JSON.
    """

    report: Report | None
    expected: Expected | None
    notes: tuple[str, ...]
    is_missing: bool = False
    is_unreadable: bool = False
    is_damaged: bool = False


def _wait(job: Job, queue_timeout: float | None) -> None:
    """Wait until a job ends, and cancel it if no worker starts it.

    Raises:
        NotTakenError: no worker started it.
        KeyboardInterrupt: the gate was interrupted; the notes name the running stage.
    """
    try:
        with cancel_on_interrupt(job.id, job.cancel):
            watch(job, results, QueueLimit(queue_timeout).check)
    except NotTakenError:
        ask_to_cancel(job.id, job.cancel)
        raise
    except KeyboardInterrupt as interruption:
        if job.document.stage:
            interruption.add_note(f"it was in stage {job.document.stage}")
        raise


def _require_common_entry(job: Job, base: Base, bounds: Bounds) -> None:
    """Check that bounds on changes apply to an entry point; else cancel the job.

    Raises:
        InvalidArgumentError: the base has none of the model's entry points.
    """
    if base.report is None:
        return
    reason = uncompared(job.document.request.entries, base.report, bounds)
    if reason:
        if not job.state.final:
            ask_to_cancel(job.id, job.cancel)
        raise InvalidArgumentError(reason)


def _judged(model: str, job: Job, base: Base, bounds: Bounds) -> Outcome:
    if job.state is not JobState.SUCCEEDED:
        return judge(model, job.document, None, None, bounds, base.notes)
    outputs, notes = base.expected.compare(job) if base.expected else ({}, ())
    notes = (*base.notes, *notes)
    return judge(model, job.document, job.report(), base.report, bounds, notes, outputs)


def _new_base(
    job: Job, outcome: Outcome, base: Base, report: Path | None, compare: Path | None
) -> Path | None:
    """Write the arrays beside the report; returns its path, or None if it must not replace the base."""
    if report is None:
        return None
    replaces_base = compare is not None and compare.exists() and report.resolve() == compare.resolve()
    spoiled = unfit_as_base(outcome, base.report) if replaces_base else ""
    if spoiled:
        print_lines(errors, f"{report} was not replaced: {spoiled}")
        return None
    if job.state is JobState.SUCCEEDED:
        keep_reference(job, report)
    if outcome.doubt:
        print_lines(errors, f"warning: {report} is not a reliable base: {outcome.doubt}")
    return report


def _require_figures(request: CompilationRequest, bounds: Bounds) -> None:
    """Check that the request measures what the bounds limit."""
    if not request.makes_bundle:
        raise InvalidArgumentError("a gate needs a complete compilation; remove stop_after")
    by_latency = bounds.latency_ratio is not None or bounds.regress_percent is not None
    if by_latency and Baseline.TORCH_EAGER not in request.benchmark.baselines:
        raise InvalidArgumentError(
            f"the latency bounds need {Baseline.TORCH_EAGER}; add it to benchmark.baselines"
        )


def _read_base(compare: Path | None, golden: Path | None) -> Base:
    """Read the base. A branch's first run has none."""
    base = _read_report(compare)
    if golden is not None:
        expected = Expected(golden, is_golden=True)
        expected.check()
        return replace(base, expected=expected)
    if compare is None or base.report is None:
        return base
    path = reference_of(compare)
    if not path.exists():
        return replace(base, notes=(f"{path} not found beside the base: the outputs were not compared",))
    return replace(base, expected=Expected(path, is_golden=False, first=_first_in(base.report)))


def _first_in(report: Report) -> str:
    """The entry point whose arrays have no folder; empty for a base with a single one."""
    return first_entry(report) if report.entries else ""


def _read_report(path: Path | None) -> Base:
    """The base's report, or why it is missing. A new release may be unable to read an old report."""
    if path is None:
        return Base(None, None, ())
    if not path.exists():
        return Base(None, None, (f"base {path} not found: nothing was compared",), is_missing=True)
    try:
        return Base(Report.read_json(path.read_bytes()), None, ())
    except ValidationError as error:
        first = error.errors()[0]
        note = f"{path} is not a report of this release ({in_words(first)}): nothing was compared"
        return Base(None, None, (note,), is_unreadable=True, is_damaged=first["type"] == "json_invalid")


def _require_base(base: Base, bounds: Bounds, allow_missing: bool) -> None:
    """Check the base before the compilation. Without one, bounds on changes would allow everything.

    ``allow_missing`` accepts a base that does not exist, but not one that cannot be read. Without bounds on
    changes, the report of another release is accepted, too.

    Raises:
        InvalidArgumentError: a bound on a change has no base, or the base's file is missing or not JSON.
    """
    unmet = without_base(bounds, base.report is not None, base.expected is not None)
    is_required = unmet or base.is_missing or base.is_damaged
    if not is_required or (allow_missing and not base.is_unreadable):
        return
    reason = base.notes[0].rpartition(": ")[0] if base.notes else "--compare is not given"
    advice = (
        "Delete the file or name another with --compare; --report writes a new base."
        if base.is_unreadable
        else f"{'Correct' if base.notes else 'Add'} --compare, or write a base with --report. If there "
        "is none yet, as in a first run, add --allow-missing-base."
    )
    verb = "needs" if len(unmet) == 1 else "need"
    needed = f"{' and '.join(unmet)} {verb} a base, but " if unmet else ""
    raise InvalidArgumentError(f"{needed}{reason}\n→ {advice}")


def _print_outcome(outcome: Outcome) -> None:
    print_lines(results, *filter(None, map(_line, outcome.measures)))
    if outcome.document.problem is not None:
        show_lines(errors, problem_lines(outcome.document.problem))
    else:
        print_lines(errors, *(f"warning: {text}" for text in outcome.warnings), *complaints(outcome))
    if outcome.verdict is Verdict.PASSED:
        print_lines(results, passed_line(outcome))
    annotate("warning", outcome.model, outcome.warnings)
    annotate("error", outcome.model, complaints(outcome))


def _line(measure: Measure) -> str | None:
    """The line for a measure; None if it has neither a figure nor a change."""
    change = None if measure.change_percent is None else shown_change(measure)
    if measure.now is None:
        return None if change is None else f"change of {measure.name}: {change}"
    compared = "" if change is None else f" ({change})"
    return f"{measure.name}: {measure.shown(measure.now)}{compared}"
