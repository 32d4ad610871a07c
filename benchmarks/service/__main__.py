"""Measures one app process under load and writes ``benchmarks/results/<date>-load.json``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from benchmarks.machine import SERVICE_PACKAGES, describe
from benchmarks.service.clients import Clients, connected, cpu_seconds, memory_mib
from benchmarks.service.page import TOPIC, table_lines
from benchmarks.service.postgresql import running_postgresql
from benchmarks.service.results import Backend, Load, ServiceResults, Spread, spread
from bessemer.contract.request import MAX_PRIORITY
from bessemer.store.settings import StoreSettings
from examples.environment import forget_settings
from examples.local_service import LocalApp, local_app

RESULTS = Path(__file__).parents[1] / "results"
SIZES = (100, 1_000, 10_000)
FOLLOWERS = 100
JOB_READS, PAGE_READS = 300, 150
DISPATCHES = 15
IDLE_SECONDS = 4.0
SETTLE_SECONDS = 2.0
WARM_UP = 3


def main() -> None:
    """Measure both backends, print a table, write the file."""
    forget_settings()
    console = Console()
    sizes = tuple(int(word) for word in sys.argv[1:]) or SIZES
    load_before, began = os.getloadavg()[0], time.monotonic()
    backends = []
    for name in ("SQLite", "PostgreSQL"):
        with tempfile.TemporaryDirectory(prefix="bessemer-load-") as folder, _database(name) as database:
            backends.append(asyncio.run(_backend(name, Path(folder), database, sizes, console)))
    results = ServiceResults(
        machine=describe(SERVICE_PACKAGES),
        measured_at=datetime.now(UTC),
        load_before=load_before,
        minutes=round((time.monotonic() - began) / 60, 1),
        followers=FOLLOWERS,
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


async def _backend(
    name: str, folder: Path, database: str | None, sizes: tuple[int, ...], console: Console
) -> Backend:
    variables = {} if database is None else {"BESSEMER_DATABASE_URL": database}
    settings = StoreSettings(data=folder / "data", database_url=database)
    with local_app(folder / "data", variables) as app:
        async with connected(app.url) as clients:
            async with _consuming(settings) as handled:
                await _dispatch(clients, handled, WARM_UP)
                empty = spread(await _dispatch(clients, handled, DISPATCHES))
            console.print(f"{name}, empty: {empty}")
            loads = []
            for queued in sizes:
                loads.append(await _load(queued, clients, app, settings))
                console.print(f"{name}: {loads[-1]}")
    return Backend(name=name, dispatch_empty=empty, loads=loads)


async def _load(queued: int, clients: Clients, app: LocalApp, settings: StoreSettings) -> Load:
    each, together = await clients.fill(queued)
    async with clients.following(FOLLOWERS):
        await asyncio.sleep(SETTLE_SECONDS)
        jobs = await clients.read_jobs(JOB_READS)
        pages = await clients.read_pages(PAGE_READS)
        used = cpu_seconds(app.process.pid)
        await asyncio.sleep(IDLE_SECONDS)
        idle_cores = (cpu_seconds(app.process.pid) - used) / IDLE_SECONDS
        memory = memory_mib(app.process.pid)
    return Load(
        queued=queued,
        submit_per_second=round(len(each) / together, 1),
        submit=spread(each),
        get_one=spread(jobs),
        list_page=spread(pages),
        memory_mib=round(memory, 1),
        idle_cores=round(idle_cores, 3),
        dispatch=await _dispatch_before_all(clients, settings),
    )


async def _dispatch_before_all(clients: Clients, settings: StoreSettings) -> Spread:
    """What is handled of the others meanwhile is submitted anew before the next measurement."""
    async with _consuming(settings) as handled:
        await _dispatch(clients, handled, WARM_UP)
        seconds = await _dispatch(clients, handled, DISPATCHES)
    gone = set(handled)
    clients.jobs = [job_id for job_id in clients.jobs if job_id not in gone]
    return spread(seconds)


async def _dispatch(clients: Clients, handled: dict[str, float], count: int) -> list[float]:
    """Seconds from before each request until its job's handling began."""
    seconds = []
    for _ in range(count):
        start = time.time()
        job_id = await clients.submit(MAX_PRIORITY)
        while job_id not in handled:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        seconds.append(handled[job_id] - start)
    return seconds


@asynccontextmanager
async def _consuming(settings: StoreSettings) -> AsyncIterator[dict[str, float]]:
    """A worker's process; the moments at which it began to handle jobs, by id."""
    command = (sys.executable, "-m", "benchmarks.service.consumer", settings.model_dump_json())
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    handled: dict[str, float] = {}

    async def listen() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            job_id, moment = line.decode().split()
            handled[job_id] = float(moment)

    listening = asyncio.create_task(listen())
    try:
        yield handled
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await listening


if __name__ == "__main__":
    main()
