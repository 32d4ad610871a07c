"""``docs/figures.md``, its charts and the README's section, from the newest results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.compile_time import page as compile_time
from benchmarks.cost_model import page as cost_model
from benchmarks.decoder import page as decoder
from benchmarks.gpu import page as gpu
from benchmarks.loading import page as loading
from benchmarks.machine import Machine, ProcessorKind
from benchmarks.models.chart import models_chart
from benchmarks.models.results import (
    STOCK,
    GrowthResult,
    ModelResult,
    ModelsResults,
    SideResult,
    larger_batches,
    mean_ratio,
    mean_ratio_to_best,
    topic,
)
from benchmarks.programs import page as programs
from benchmarks.searching import page as searching
from benchmarks.service import page as load
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.contract.stage import Stage
from bessemer.figures.words import duration, percent, three_digits

RESULTS = Path(__file__).parent / "results"
LOAD_CHART = "load.svg"
COMPILING = (Stage.TRANSLATE, Stage.OPTIMIZE, Stage.TUNE, Stage.BUILD)
SHOWN_SHARE = 0.05
INTRODUCTION = (
    "Performance of the service and of compiled models, from the newest benchmark runs.",
    "",
)


class ModelsRun(NamedTuple):
    """A run of the models benchmark, and its file."""

    path: Path
    results: ModelsResults


def models_runs(kind: ProcessorKind, folder: Path = RESULTS) -> Iterator[ModelsRun]:
    """The newest run on processors of a kind, and the newest without batch 1, as far as there are any.

    Batches that the second has measured later are left out of the first.
    """
    paths = (newest(folder, topic(kind)), newest(folder, larger_batches(kind)))
    found = [path for path in paths if path is not None]
    runs = [ModelsRun(path, ModelsResults.model_validate_json(path.read_text())) for path in found]
    if len(runs) == 2 and runs[0].results.measured_at < runs[1].results.measured_at:
        later = {model.batch for model in runs[1].results.models}
        left = [model for model in runs[0].results.models if model.batch not in later]
        runs[0] = ModelsRun(runs[0].path, runs[0].results.model_copy(update={"models": left}))
    yield from runs


def chart_name(kind: ProcessorKind) -> str:
    """The name of the chart of the models."""
    return f"{topic(kind)}.svg"


def figures_page(folder: Path = RESULTS) -> str:
    """The page with all figures."""
    lines = [
        "# Benchmarks",
        "",
        *INTRODUCTION,
        *_service(folder),
        *load.section(folder, LOAD_CHART),
        *(line for kind in ProcessorKind for run in models_runs(kind, folder) for line in _models(kind, run)),
        *searching.section(folder),
        *compile_time.section(folder),
        *programs.section(folder),
        *decoder.section(folder),
        *loading.section(folder),
        *cost_model.section(folder),
        *gpu.section(folder),
    ]
    return "\n".join(lines)


def chart_page(kind: ProcessorKind, folder: Path = RESULTS) -> str | None:
    """The chart of the models; None without results."""
    models = [model for run in models_runs(kind, folder) for model in run.results.models if model.batch == 1]
    return models_chart(models) if models else None


def load_chart_page(folder: Path = RESULTS) -> str | None:
    """The chart of the service under load; None without results."""
    return load.chart_page(folder)


def readme_section(folder: Path = RESULTS) -> str:
    """The README's chart and summary; empty without results."""
    found = [(kind, run.results) for kind in ProcessorKind for run in models_runs(kind, folder)]
    if not found:
        return ""
    lines = [
        f"![Latency of the example models relative to other runtimes](docs/{chart_name(found[0][0])})",
        "",
        "The geometric mean of Bessemer's latency without tuning (float32), as a share of the fastest other",
        "runtime's on each model, and of torch eager's:",
        "",
        *table(
            ("processor", "batch", "models", "of the fastest other", "of torch eager"),
            (row for kind, results in found for row in _mean_rows(kind, results)),
        ),
        "",
        "See [all figures and how they were measured](docs/figures.md).",
    ]
    return "\n".join(lines) + "\n"


def _mean_rows(kind: ProcessorKind, results: ModelsResults) -> Iterator[tuple[str, ...]]:
    machine = f"{kind.value}: {describe_machine(results.machine)}"
    for batch, alike in _by_batch(results.models):
        means = (mean_ratio_to_best(alike), mean_ratio(alike, "torch eager"))
        yield (
            machine,
            str(batch),
            str(len(alike)),
            *("" if mean is None else f"{mean:.2f}" for mean in means),
        )


def _service(folder: Path) -> list[str]:
    path = newest(folder, "service")
    if path is None:
        return []
    document: dict[str, Any] = json.loads(path.read_text())
    machine = Machine.model_validate(document["machine"])
    rows = [_service_row(figure) for figure in document["figures"]]
    return [
        "## The service",
        "",
        f"Run `make bench` to repeat this. {from_file(path)} {describe_machine(machine)}, on SQLite and a "
        "folder.",
        "",
        *table(("figure", "unit", "samples", "best", "median", "90th percentile", "aim"), rows),
        "",
    ]


def _service_row(figure: dict[str, Any]) -> tuple[str, ...]:
    name, indented = figure["name"].strip(), figure["name"].startswith(" ")
    values = (f"{figure[field]:g}" for field in ("samples", "best", "median", "p90"))
    aim = "" if figure["aim"] is None else f"≤ {figure['aim']:g}"
    return (f"· {name}" if indented else name, figure["unit"], *values, aim)


def _models(kind: ProcessorKind, run: ModelsRun) -> list[str]:
    results, batches = run.results, " ".join(str(batch) for batch, _ in _by_batch(run.results.models))
    where = kind.value if results.has_single_samples else f"{kind.value}, with larger batches"
    chart = f"![Latency by model and runtime, relative to torch eager]({chart_name(kind)})"
    return [
        f"## The example models, on {where}",
        "",
        f'Run `make bench-models BATCHES="{batches}"` to repeat this ({results.minutes:g} minutes). '
        f"{from_file(run.path)} {describe_machine(results.machine)}; load {results.load_before:g} before the "
        f"run. No trials, {results.threads} threads, float32, seeded random weights.",
        "",
        *((chart, "") if results.has_single_samples else ()),
        f"Bessemer is the bundle's library, loaded by `run.py`. {_capital(_means(results.models))}.",
        "",
        *_latency_tables(results),
        *_operators(where, results),
        *(_compile_times(where, results) if results.has_single_samples else ()),
    ]


def _latency_tables(results: ModelsResults) -> list[str]:
    names = _peer_names(results.models)
    rows = [
        (model.name, _times(model.ours), *(_times(_side(model, name)) for name in names))
        for model in results.models
    ]
    ratios = [
        (model.name, *(_ratio(_side(model, name)) for name in names), _best(model))
        for model in results.models
    ]
    means = [_mean_row(batch, alike, names) for batch, alike in _by_batch(results.models)]
    versions = ", ".join(f"{side.name} {side.version}" for side in results.models[0].peers if side.version)
    return [
        "Median of single runs in milliseconds (best in parentheses):",
        "",
        *table(("model", "Bessemer", *names), rows),
        "",
        "Bessemer's time divided by the other's, per round: median (10th to 90th percentile). Below 1,",
        "Bessemer is faster. Each runtime has its own process. They take turns, and a process is stopped",
        "during the others' turns." + (" Stock TVM ran alone:" if STOCK in names else ""),
        "",
        *table(("model", *names, "best other"), [*ratios, *means]),
        "",
        f"{versions}.",
        *_notes(results.models),
        "",
    ]


def _mean_row(batch: int, models: list[ModelResult], names: Sequence[str]) -> tuple[str, ...]:
    means = (*(mean_ratio(models, name) for name in names), mean_ratio_to_best(models))
    cells = ("" if mean is None else f"**{mean:.2f}**" for mean in means)
    return (f"**geometric mean, batch {batch}**", *cells)


def _operators(where: str, results: ModelsResults) -> list[str]:
    sgemm = [
        (f"{one.size}", three_digits(one.torch_gflops), three_digits(one.ours_gflops))
        for one in results.sgemm
    ]
    rows = [
        (
            model.name,
            f"`{operator.function}`",
            operator.products,
            str(operator.calls),
            duration(operator.milliseconds),
            duration(min(operator.best_milliseconds, operator.milliseconds)),
            percent(operator.share),
            "" if operator.gflops_per_second is None else three_digits(operator.gflops_per_second),
            "" if operator.share_of_ceiling is None else f"{operator.share_of_ceiling:.0%}",
        )
        for model in results.models
        for operator in model.operators
        if operator.share >= SHOWN_SHARE
    ]
    columns = (
        "model",
        "function",
        "products",
        "calls",
        "median",
        "best",
        "share of model",
        "GFLOP/s",
        "of ceiling",
    )
    return [
        f"### Where the time goes, on {where}",
        "",
        "The ceiling is the fastest float32 matrix product of the same run: "
        f"{results.ceiling_gflops:.0f} GFLOP/s. GFLOP/s are for a function's fastest run.",
        "",
        *table(("matrix size", "torch, GFLOP/s", "Bessemer, GFLOP/s"), sgemm),
        "",
        f"Functions that take at least {SHOWN_SHARE:.0%} of their model's time:",
        "",
        *table(columns, rows),
        "",
    ]


def _compile_times(where: str, results: ModelsResults) -> list[str]:
    models = [
        (model.name, *_seconds({stage: min(times) for stage, times in model.stages.items()}))
        for model in results.models
        if model.stages
    ]
    chains = [(_chain(one), *_seconds(one.stages)) for one in results.growth]
    columns = (*(stage.value for stage in COMPILING), "total")
    return [
        f"### Compile time, on {where}",
        "",
        "Seconds per stage in a warm worker, best of several jobs:",
        "",
        *table(("model", *columns), models),
        "",
        "Chains of layers:",
        "",
        *table(("chain", *columns), chains),
        "",
    ]


def _seconds(stages: dict[Stage, float]) -> tuple[str, ...]:
    times = [stages[stage] for stage in COMPILING]
    return tuple(f"{seconds:.2f}" for seconds in (*times, sum(times)))


def _chain(growth: GrowthResult) -> str:
    return f"{growth.layers} {growth.kind}"


def _notes(models: Sequence[ModelResult]) -> list[str]:
    notes = [
        f"- {side.name} on {model.name}: {side.state.value}: {side.note}"
        for model in models
        for side in (model.ours, *model.peers)
        if side.latency is None
    ]
    return ["", *notes] if notes else []


def _means(models: Sequence[ModelResult]) -> str:
    means = (_mean_of_batch(batch, alike) for batch, alike in _by_batch(models))
    return "; ".join(means) or "nothing was compared"


def _mean_of_batch(batch: int, models: list[ModelResult]) -> str:
    eager, best = mean_ratio(models, "torch eager"), mean_ratio_to_best(models)
    if eager is None or best is None:
        return f"nothing was compared with batch {batch}"
    return (
        f"with batch {batch}, the geometric mean of Bessemer's latency is {eager:.2f} of torch eager's, "
        f"and {best:.2f} of the fastest other runtime's on each of {len(models)} models"
    )


def _by_batch(models: Sequence[ModelResult]) -> Iterator[tuple[int, list[ModelResult]]]:
    batch_of = attrgetter("batch")
    for batch, alike in groupby(sorted(models, key=batch_of), key=batch_of):
        yield batch, list(alike)


def _peer_names(models: Sequence[ModelResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(side.name for model in models for side in model.peers))


def _side(model: ModelResult, name: str) -> SideResult | None:
    return next((side for side in model.peers if side.name == name), None)


def _times(side: SideResult | None) -> str:
    if side is None:
        return ""
    if side.latency is None:
        return side.state.value
    return f"{three_digits(side.latency.p50_ms)} ({three_digits(side.latency.min_ms)})"


def _ratio(side: SideResult | None) -> str:
    if side is None or side.ratio is None:
        return ""
    if side.rounds == 1:
        return f"{side.ratio.median:.3f}"
    return f"{side.ratio.median:.2f} ({side.ratio.p10:.2f} to {side.ratio.p90:.2f})"


def _best(model: ModelResult) -> str:
    peer = model.best_peer
    return "" if peer is None or peer.ratio is None else f"{peer.ratio.median:.2f} ({peer.name})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
