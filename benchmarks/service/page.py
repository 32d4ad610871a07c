"""The table and the words of ``make bench-service``."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.service.results import Backend, Load, ServiceResults, Spread
from benchmarks.tables import table
from worker.report.words import TIMES

QUANTITIES: dict[str, Callable[[Load], float]] = {
    "submitted per second, 8 clients at once": lambda load: load.submit_per_second,
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
