"""Benchmarks one app process under load and writes ``benchmarks/results/<date>-load.json``."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.machine import SERVICE_PACKAGES, describe
from benchmarks.service.clients import Clients, connected, cpu_seconds, memory_mib
from benchmarks.service.dispatch import dispatch
from benchmarks.service.filling import Filler, filling
from benchmarks.service.followers import FollowedJobs, followed
from benchmarks.service.page import TOPIC, table_lines
from benchmarks.service.postgresql import running_postgresql
from benchmarks.service.results import Backend, Load, ServiceResults, spread
from bessemer.store.settings import StoreSettings
from examples.environment import forget_settings
from examples.local_service import LocalApp, local_app

RESULTS = Path(__file__).parents[1] / "results"
SIZES = (100, 1_000, 10_000)
FOLLOWERS = 100
SUBMISSIONS, DISPATCHES = 1_000, 200
JOB_READS, PAGE_READS, SCRAPES = 500, 200, 200
IDLE_SECONDS = 4.0
SETTLE_SECONDS = 1.0


@dataclass(frozen=True)
class Bench:
    """One app on a database."""

    name: str
    app: LocalApp
    settings: StoreSettings
    filler: Filler


def main() -> None:
    """Measure both backends, print a table, write the file."""
    forget_settings()
    console = Console()
    sizes = sorted({int(word) for word in sys.argv[1:]} or SIZES)
    load_before, began = os.getloadavg()[0], time.monotonic()
    backends = []
    for name in ("SQLite", "PostgreSQL"):
        with tempfile.TemporaryDirectory(prefix="bessemer-load-") as folder, _database(name) as database:
            backends.append(_backend(name, Path(folder), database, sizes, console))
    results = ServiceResults(
        machine=describe(SERVICE_PACKAGES),
        measured_at=datetime.now(UTC),
        load_before=load_before,
        minutes=round((time.monotonic() - began) / 60, 1),
        submissions=SUBMISSIONS,
        backends=backends,
    )
    console.print("\n".join(table_lines(results)), soft_wrap=True)
    path = RESULTS / f"{results.measured_at:%Y-%m-%d}-{TOPIC}.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    console.print(f"written to {path}")


@contextmanager
def _database(name: str) -> Iterator[str | None]:
    if name == "SQLite":
        yield None
    else:
        with running_postgresql() as url:
            yield url


def _backend(name: str, folder: Path, database: str | None, sizes: list[int], console: Console) -> Backend:
    variables = {} if database is None else {"BESSEMER_DATABASE_URL": database}
    settings = StoreSettings(data=folder / "data", database_url=database)
    with local_app(folder / "data", variables) as app, filling(settings) as filler:
        return asyncio.run(_measured(Bench(name, app, settings, filler), sizes, console))


async def _measured(bench: Bench, sizes: list[int], console: Console) -> Backend:
    async with connected(bench.app.url) as clients:
        empty = spread(await dispatch(clients, bench.settings, DISPATCHES))
        console.print(f"{bench.name}, empty: {empty}")
        loads = []
        async with followed(clients, bench.filler.store.jobs, FOLLOWERS) as jobs:
            for queued in sizes:
                loads.append(await _load(bench, clients, jobs, queued))
                console.print(f"{bench.name}: {loads[-1]}")
    return Backend(name=bench.name, dispatch_empty=empty, loads=loads)


async def _load(bench: Bench, clients: Clients, followed_jobs: FollowedJobs, queued: int) -> Load:
    """Measure one load, with followers connected throughout."""
    pid = bench.app.process.pid
    each, together = await _fill(bench.filler, clients, queued)
    await asyncio.sleep(SETTLE_SECONDS)
    jobs = await clients.read_jobs(JOB_READS)
    pages = await clients.read_pages(PAGE_READS)
    dispatched = await dispatch(clients, bench.settings, DISPATCHES)
    idle_cores = await _idle_cores(pid, followed_jobs)
    after_silence = await followed_jobs.break_silence()
    at_work = await followed_jobs.work()
    scrapes = await clients.scrape(SCRAPES)
    return Load(
        queued=queued,
        followers=scrapes.followers,
        submit_per_second=round(len(each) / together, 1),
        submit=spread(each),
        get_one=spread(jobs),
        list_page=spread(pages),
        scrape=spread(scrapes.seconds),
        metrics_bytes=scrapes.page_bytes,
        memory_mib=round(memory_mib(pid), 1),
        idle_cores=round(idle_cores, 3),
        dispatch=spread(dispatched),
        event_at_work=spread(at_work),
        event_after_silence=spread(after_silence),
    )


async def _fill(filler: Filler, clients: Clients, queued: int) -> tuple[list[float], float]:
    """Fill the queue; return the seconds of each of the last submissions and their total."""
    untimed = queued - len(clients.jobs) - SUBMISSIONS
    if untimed > 0:
        clients.jobs |= await asyncio.to_thread(filler.fill, clients.model, untimed)
    return await clients.submit_many(queued - len(clients.jobs))


async def _idle_cores(pid: int, followed_jobs: FollowedJobs) -> float:
    await followed_jobs.fall_silent()
    used = cpu_seconds(pid)
    await asyncio.sleep(IDLE_SECONDS)
    return (cpu_seconds(pid) - used) / IDLE_SECONDS


if __name__ == "__main__":
    main()
