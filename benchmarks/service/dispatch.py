"""Time from a job's submission until an idle worker takes it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.service.clients import Clients
from bessemer.contract.request import MAX_PRIORITY
from bessemer.store.queue.dbos_engine import POLLING_SECONDS
from bessemer.store.settings import StoreSettings

WARM_UP = 3
LOOK_SECONDS = 0.002


async def dispatch(clients: Clients, settings: StoreSettings, count: int) -> list[float]:
    """Measure the seconds from each request until a worker starts its job.

    Jobs are submitted one by one at random moments, with the highest priority. Other jobs that the worker
    takes are submitted again.
    """
    queued = len(clients.jobs)
    moments = random.Random(0)
    async with _consuming(settings) as handled:
        seconds = []
        for _ in range(WARM_UP + count):
            clients.jobs.difference_update(handled)
            await clients.submit_many(queued - len(clients.jobs))
            await asyncio.sleep(moments.uniform(0, POLLING_SECONDS))
            seconds.append(await _dispatch(clients, handled))
    clients.jobs.difference_update(handled)
    return seconds[WARM_UP:]


async def _dispatch(clients: Clients, handled: dict[str, float]) -> float:
    start = time.time()
    job_id = await clients.submit(MAX_PRIORITY)
    while job_id not in handled:  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)
    return handled[job_id] - start


@asynccontextmanager
async def _consuming(settings: StoreSettings) -> AsyncIterator[dict[str, float]]:
    """Run a consumer process; yields the start times of jobs by id."""
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
