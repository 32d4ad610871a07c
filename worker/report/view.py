"""Computes what the page shows from a report: headline, charts, command lines."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any

from bessemer.contract.dynamic import VerifiedSizes, shown_sizes
from bessemer.contract.extension import file_options
from bessemer.contract.model import ModelFormat
from bessemer.contract.report import (
    BenchmarkResult,
    EntryReport,
    OutputComparison,
    PassTime,
    ReferenceSource,
    Report,
    TuneResult,
)
from bessemer.contract.request import CompilationRequest, Entry
from bessemer.contract.target import PresetTarget
from bessemer.figures import charts, words
from bessemer.figures.headline import Headline, make_headline
from worker.measure.statistics import agrees, largest, total_ms

ARGUMENTS = frozenset(
    {"model", "name", "inputs", "dimensions", "constants", "entries", "extensions", "extension_names"}
)
"""Fields of a request that have their own command-line options."""

SHOWN_CURVES = 12
OURS = "compiled library"
FORMATS = {
    ModelFormat.PT2: "Exported program",
    ModelFormat.TORCHSCRIPT: "TorchScript",
    ModelFormat.FX: "FX graph",
    ModelFormat.IR_MODULE: "IRModule",
}

REFERENCES = {
    ReferenceSource.MODEL: "the original model",
    ReferenceSource.FUNCTION: "the reference function",
    ReferenceSource.ARRAYS: "the uploaded outputs",
    ReferenceSource.LOWERING: "TVM's own lowering of the module",
}


@dataclass(frozen=True)
class Phase:
    """Consecutive passes with their total time."""

    name: str
    seconds: float
    passes: tuple[PassTime, ...]


@dataclass(frozen=True)
class EntryRow:
    """A row of the table of entry points."""

    name: str
    benchmark: BenchmarkResult
    max_error: float
    sizes: str

    @property
    def does(self) -> str:
        """What a run of a decoder does."""
        tokens = self.benchmark.tokens
        return "writes the next token" if tokens == 1 else f"reads {tokens} tokens of a prompt"


@dataclass(frozen=True)
class ComparisonRow:
    """A row of the table of verification; ``entry`` is empty if the library has one entry point."""

    entry: str
    found: OutputComparison


@dataclass(frozen=True)
class SizesRow:
    """Sizes at which outputs were compared; ``entry`` is as in ``ComparisonRow``."""

    entry: str
    verified: VerifiedSizes


@dataclass(frozen=True)
class Measurement:
    """What the page shows of the benchmark."""

    headline: Headline
    latency: charts.LatencyChart
    spread: charts.SpreadChart
    functions: tuple[charts.Bar, ...]
    functions_ms: float
    functions_agree: bool
    runtime_note: str


@dataclass(frozen=True)
class Verdict:
    """The comparison with other runtimes, in sentences."""

    headline: str
    details: str
    machine: str
    outlook: str


@dataclass(frozen=True)
class View:
    """Everything that the template reads; ``measured`` is None for a library that was not measured."""

    report: Report
    name: str
    format: str
    reference: str
    max_error: float
    measured: Measurement | None
    sizes: str
    stages: tuple[charts.Bar, ...]
    total_seconds: float
    curves: tuple[charts.Curve, ...]
    model_curve: charts.ModelCurve | None
    verdict: Verdict | None
    phases: tuple[Phase, ...]
    passes_seconds: float
    operators: tuple[tuple[str, int], ...]
    reproduce: tuple[str, ...]
    request_json: str
    entries: tuple[EntryRow, ...]
    comparisons: tuple[ComparisonRow, ...]
    verified_sizes: tuple[SizesRow, ...]

    @property
    def outputs(self) -> int:
        """The number of outputs of all entry points."""
        return len(self.report.outputs) + sum(len(entry.outputs) for entry in self.report.entries)

    @property
    def decoding(self) -> tuple[EntryRow, ...]:
        """The entry points of a decoder."""
        return tuple(row for row in self.entries if row.benchmark.tokens is not None)


def make_view(report: Report) -> View:
    """Compute what the page shows.

    Raises:
        ValueError: the compilation stopped before the library was measured.
    """
    benchmark, tune = report.benchmark, report.tune
    if report.stopped_after is not None or tune is None:
        raise ValueError(f"the compilation stopped after {report.stopped_after}")
    tasks = sorted(tune.tasks, key=lambda task: -(task.best_ms or 0) * task.weight)
    curves = (charts.tuning_curve(task) for task in tasks)
    return View(
        report=report,
        name=model_name(report),
        format=FORMATS[report.model_format],
        reference=REFERENCES[report.reference],
        max_error=largest(_errors(report)),
        measured=None if benchmark is None else _measurement(benchmark),
        sizes=shown_sizes(report.dynamic.sizes(report.inputs)),
        stages=charts.stage_bars(report.stages, report.request.searches, report.built_functions),
        total_seconds=sum(stage.seconds for stage in report.stages),
        curves=tuple(curve for curve in curves if curve)[:SHOWN_CURVES],
        model_curve=_model_curve(tune, benchmark),
        verdict=None if benchmark is None else _verdict(benchmark),
        phases=group_passes(report.passes),
        passes_seconds=sum(entry.seconds for entry in report.passes),
        operators=tuple(sorted(report.operators.items(), key=lambda item: (-item[1], item[0]))),
        reproduce=command_lines(report.request, {each.digest: each.name for each in report.extensions}),
        request_json=json.dumps(report.request.model_dump(mode="json"), indent=2),
        entries=() if benchmark is None else tuple(_entry_rows(report, benchmark)),
        comparisons=tuple(_comparison_rows(report)),
        verified_sizes=tuple(_sizes_rows(report)),
    )


def _verdict(benchmark: BenchmarkResult) -> Verdict | None:
    found = benchmark.comparison
    if found is None:
        return None
    return Verdict(
        headline=words.peer_headline(found),
        details=words.peer_details(found, benchmark.baselines),
        machine="" if found.ceiling is None else words.ceiling(found.ceiling),
        outlook=words.outlook(found, benchmark.latency.p50_ms),
    )


def _model_curve(tune: TuneResult, benchmark: BenchmarkResult | None) -> charts.ModelCurve | None:
    """The curve of the search; peers that the benchmark measured are shown as it did."""
    estimate = tune.estimate
    if estimate is None:
        return None
    peers = {words.baseline_name(name): value for name, value in estimate.peers_ms.items()}
    measured = benchmark.baselines if benchmark else ()
    peers |= {words.baseline_name(peer.name): peer.latency.p50_ms for peer in measured if not peer.doubt}
    return charts.model_curve(tune.curve, estimate.untuned_ms, peers)


def _errors(report: Report) -> Iterator[float]:
    yield from (row.found.max_absolute_error for row in _comparison_rows(report))
    if report.device is not None:
        yield report.device.max_absolute_error


def _measurement(benchmark: BenchmarkResult) -> Measurement:
    rows = [
        charts.LatencyRun(OURS, benchmark.latency, not benchmark.unsteady),
        *(
            charts.LatencyRun(
                words.baseline_name(peer.name), peer.latency, peer.is_steady, words.with_threads(peer)
            )
            for peer in benchmark.baselines
        ),
    ]
    return Measurement(
        headline=make_headline(benchmark.baselines),
        latency=charts.latency_chart(rows),
        spread=charts.spread_chart(rows),
        functions=charts.function_bars(benchmark.functions),
        functions_ms=total_ms(benchmark.functions),
        functions_agree=agrees(benchmark.functions, benchmark.latency.p50_ms),
        runtime_note=words.runtime_note(benchmark.functions),
    )


def _comparison_rows(report: Report) -> Iterator[ComparisonRow]:
    for name, entry in _by_entry(report):
        yield from (ComparisonRow(name, found) for found in entry.comparisons)


def _sizes_rows(report: Report) -> Iterator[SizesRow]:
    for name, entry in _by_entry(report):
        yield from (SizesRow(name, verified) for verified in entry.verified_sizes)


def _by_entry(report: Report) -> Iterator[tuple[str, Report | EntryReport]]:
    """The parts of a report about each entry point, by its name: empty if there is only one."""
    first = next(iter(report.request.entries), "") if report.entries else ""
    yield first, report
    yield from ((entry.name, entry) for entry in report.entries)


def _entry_rows(report: Report, benchmark: BenchmarkResult) -> Iterator[EntryRow]:
    first = next(iter(report.request.entries), "")
    rows = [(first, report.comparisons, benchmark, report.dynamic.sizes(report.inputs))]
    rows += [
        (one.name, one.comparisons, one.benchmark, one.dynamic.sizes(one.inputs))
        for one in report.entries
        if one.benchmark
    ]
    for name, comparisons, result, sizes in rows:
        error = largest(each.max_absolute_error for each in comparisons)
        yield EntryRow(name, result, error, shown_sizes(sizes))


def model_name(report: Report) -> str:
    """The page's title: the model's name, or its format and the start of its digest."""
    return report.request.name or f"{FORMATS[report.model_format]} {report.model[:8]}"


def group_passes(passes: tuple[PassTime, ...]) -> tuple[Phase, ...]:
    """Passes by phase, in the order they ran."""
    phases = []
    for name, members in groupby(passes, key=lambda entry: entry.phase):
        entries = tuple(members)
        phases.append(Phase(name, sum(entry.seconds for entry in entries), entries))
    return tuple(phases)


def command_lines(
    request: CompilationRequest, extensions: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """The command that requests the same compilation, one argument per line.

    Args:
        request: the request.
        extensions: the file names of its extensions, by digest.
    """
    target = request.target
    parts = ["bessemer compile MODEL"]
    parts += [f"--target {shlex.quote(target.preset)}"] if isinstance(target, PresetTarget) else []
    parts += [f"--name {shlex.quote(request.name)}"] if request.name else []
    parts += [f"--input {shlex.quote(str(spec))}" for spec in request.inputs]
    parts += [f"--dimension {shlex.quote(f'{name}={limits}')}" for name, limits in request.dimensions.items()]
    constants = {name: json.dumps(value) for name, value in request.constants.items()}
    parts += [f"--constant {shlex.quote(f'{name}={value}')}" for name, value in constants.items()]
    parts += [f"--entry {shlex.quote(_entry_text(*entry))}" for entry in request.entries.items()]
    files = file_options(extensions, request.tune.schedules)
    parts += [f"{option} {shlex.quote(value)}" for option, value in files]
    parts += [f"--option {shlex.quote(f'{name}={value}')}" for name, value in changed_options(request)]
    return (*parts, "--output DIR")


def _entry_text(name: str, entry: Entry) -> str:
    method = f"={entry.method}" if entry.method else f"={name}.pt2" if entry.model else ""
    return ",".join((f"{name}{method}", *map(str, entry.inputs)))


def changed_options(request: CompilationRequest) -> tuple[tuple[str, str], ...]:
    """The options with non-default values, as pairs of dotted name and command-line value."""
    given: dict[str, Any] = request.model_dump(mode="json", exclude_defaults=True)
    given.get("tune", {}).pop("schedules", None)
    asked = {name: value for name, value in given.items() if name not in ARGUMENTS}
    options = ((name, _option_text(value)) for name, value in _leaves(asked, ""))
    return tuple(option for option in options if option[0] != "target.preset")


def _leaves(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _option_text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_option_text, value))
    return value if isinstance(value, str) else json.dumps(value)
