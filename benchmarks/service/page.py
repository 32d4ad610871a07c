"""The tables, the chart and the words of ``make bench-service``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.service.chart import load_chart
from benchmarks.service.clients import READERS, SUBMITTERS
from benchmarks.service.results import Backend, Load, ServiceResults, Spread
from benchmarks.tables import describe_machine, from_file, newest, table
from worker.report.words import TIMES

TOPIC = "load"

QUANTITIES: dict[str, Callable[[Load], float]] = {
    f"submitted per second, {SUBMITTERS} clients at once": lambda load: load.submit_per_second,
    "submitting, p50, ms": lambda load: load.submit.p50_ms,
    "submitting, p99, ms": lambda load: load.submit.p99_ms,
    "reading a job, p50, ms": lambda load: load.get_one.p50_ms,
    "reading a job, p99, ms": lambda load: load.get_one.p99_ms,
    "reading a page of 50, p50, ms": lambda load: load.list_page.p50_ms,
    "reading a page of 50, p99, ms": lambda load: load.list_page.p99_ms,
    "memory of the app, MiB": lambda load: load.memory_mib,
    "cores used while nothing happens": lambda load: load.idle_cores,
    "from submission to a worker's hand, p50, ms": lambda load: load.dispatch.p50_ms,
    "from submission to a worker's hand, p99, ms": lambda load: load.dispatch.p99_ms,
}


def section(folder: Path, chart: str) -> list[str]:
    """The part of the page of figures; empty where nothing was measured.

    Args:
        folder: of the results.
        chart: the file of ``chart_page``, as the page refers to it.
    """
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = _read(path)
    return [
        "## The service under load",
        "",
        f"`make bench-service` measures these again ({results.minutes:g} minutes). {from_file(path)} "
        f"{describe_machine(results.machine)}; load {results.load_before:.3g} before the run.",
        "",
        f"One app process, its clients and one consumer share the machine. {results.followers} clients "
        f"follow events while {READERS} others read. The consumer takes jobs as a worker does, and ends them "
        "at once.",
        "",
        f"![How one app process bears a growing queue, on SQLite and PostgreSQL]({chart})",
        "",
        *table_lines(results),
    ]


def chart_page(folder: Path) -> str | None:
    """The chart of the newest results; None where nothing was measured."""
    path = newest(folder, TOPIC)
    return None if path is None else load_chart(_read(path).backends)


def _read(path: Path) -> ServiceResults:
    return ServiceResults.model_validate_json(path.read_text())


def table_lines(results: ServiceResults) -> list[str]:
    """One table for each backend: a row for each quantity, a column for each size, and the growth."""
    return [line for backend in results.backends for line in _backend(backend)]


def _backend(backend: Backend) -> list[str]:
    empty = _words(backend.dispatch_empty)
    sizes = [f"{load.queued:,} queued" for load in backend.loads]
    rows = [
        (name, *(f"{quantity(load):g}" for load in backend.loads), _growth(quantity, backend.loads))
        for name, quantity in QUANTITIES.items()
    ]
    return [
        f"{backend.name}; into an empty queue, {empty} from submission to a worker's hand:",
        "",
        *table(("", *sizes, "growth"), rows),
        "",
    ]


def _growth(quantity: Callable[[Load], float], loads: list[Load]) -> str:
    first, last = quantity(loads[0]), quantity(loads[-1])
    return f"{TIMES}{last / first:.2g}" if first else ""


def _words(found: Spread) -> str:
    return f"{found.p50_ms:.0f} ms (p99 {found.p99_ms:.0f} ms)"
