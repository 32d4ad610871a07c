"""The tables, the chart and the text of ``make bench-service``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.service.chart import load_chart
from benchmarks.service.clients import PAGE, READERS, SUBMITTERS
from benchmarks.service.followers import LIVELY_JOBS, SILENCE_SECONDS
from benchmarks.service.results import Backend, Load, ServiceResults, Spread
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.figures.words import TIMES
from worker.supervisor.job_record import PROGRESS_SECONDS

TOPIC = "load"


@dataclass(frozen=True)
class Quantity:
    """A row of the table; ``samples`` is 0 for single values."""

    name: str
    value: Callable[[Load], float]
    samples: Callable[[Load], int] = lambda _: 0


def _spread(name: str, found: Callable[[Load], Spread]) -> tuple[Quantity, Quantity]:
    def samples(load: Load) -> int:
        return found(load).samples

    return (
        Quantity(f"{name}, p50, ms", lambda load: found(load).p50_ms, samples),
        Quantity(f"{name}, p99, ms", lambda load: found(load).p99_ms, samples),
    )


QUANTITIES = (
    Quantity(
        f"submitted per second, {SUBMITTERS} clients at once",
        lambda load: load.submit_per_second,
        lambda load: load.submit.samples,
    ),
    *_spread("submitting", lambda load: load.submit),
    *_spread("reading a job", lambda load: load.get_one),
    *_spread(f"reading a page of {PAGE}", lambda load: load.list_page),
    *_spread("reading `/metrics`", lambda load: load.scrape),
    Quantity("size of `/metrics`, KiB", lambda load: round(load.metrics_bytes / 1024, 1)),
    *_spread("dispatch to an idle worker", lambda load: load.dispatch),
    *_spread("event delivery, active job", lambda load: load.event_at_work),
    *_spread("event delivery, silent job", lambda load: load.event_after_silence),
    Quantity("open event streams", lambda load: load.followers),
    Quantity("memory of the app, MiB", lambda load: load.memory_mib),
    Quantity("cores used while idle", lambda load: load.idle_cores),
)


def section(folder: Path, chart: str) -> list[str]:
    """This section of the figures page; empty without results.

    Args:
        folder: the results folder.
        chart: the path of the chart, relative to the page.
    """
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = _read(path)
    return [
        "## The service under load",
        "",
        f"Run `make bench-service` to repeat this ({results.minutes:g} minutes). {from_file(path)} "
        f"{describe_machine(results.machine)}; load {results.load_before:.3g} before the run.",
        "",
        "One app process, its clients and one consumer share the machine. Event streams of other jobs are "
        f"open throughout. Up to {results.submissions:,} jobs per size are submitted through the app by "
        f"{SUBMITTERS} concurrent clients; the rest are written to the database directly. {READERS} clients "
        "read jobs and pages, and one reads `/metrics`. Dispatch is measured with jobs of the highest "
        "priority, submitted one by one at random moments to a consumer that ends each job at once.",
        "",
        "Event delivery is the time from an event's `at` until its follower has it. "
        f"{LIVELY_JOBS} active jobs report progress every {PROGRESS_SECONDS:g} s on average. A silent job "
        f"has reported nothing for {SILENCE_SECONDS:g} s, so the app polls it once a second.",
        "",
        f"![One app process with a growing queue, on SQLite and PostgreSQL]({chart})",
        "",
        *table_lines(results),
    ]


def chart_page(folder: Path) -> str | None:
    """The chart of the newest results; None without results."""
    path = newest(folder, TOPIC)
    return None if path is None else load_chart(_read(path).backends)


def _read(path: Path) -> ServiceResults:
    return ServiceResults.model_validate_json(path.read_text())


def table_lines(results: ServiceResults) -> list[str]:
    """One table per backend, with a row per quantity and a column per size."""
    return [line for backend in results.backends for line in _backend(backend)]


def _backend(backend: Backend) -> list[str]:
    sizes = [f"{load.queued:,} queued" for load in backend.loads]
    return [
        f"{backend.name}; with an empty queue and without event streams, {_words(backend.dispatch_empty)} "
        "from submission to an idle worker:",
        "",
        *table(("", "samples", *sizes, "growth"), (_row(quantity, backend.loads) for quantity in QUANTITIES)),
        "",
    ]


def _row(quantity: Quantity, loads: Sequence[Load]) -> tuple[str, ...]:
    values = [quantity.value(load) for load in loads]
    growth = f"{TIMES}{values[-1] / values[0]:.2g}" if values[0] else ""
    return (quantity.name, _samples(quantity, loads), *(f"{value:g}" for value in values), growth)


def _samples(quantity: Quantity, loads: Sequence[Load]) -> str:
    counts = sorted({quantity.samples(load) for load in loads} - {0})
    return " to ".join(f"{count:,}" for count in dict.fromkeys((*counts[:1], *counts[-1:])))


def _words(found: Spread) -> str:
    return f"{found.p50_ms:.0f} ms (p99 {found.p99_ms:.0f} ms, {found.samples:,} samples)"
