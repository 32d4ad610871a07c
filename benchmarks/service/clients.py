"""What clients do to the app, and how long each of their requests takes."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

SUBMITTERS = 8
READERS = 4
PAGE = 50
REQUEST_SECONDS = 120.0

Timed = Callable[[], Awaitable[httpx.Response]]


class Clients:
    """Many clients of one app."""

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self._http = http
        self._model = model
        self.jobs: list[str] = []

    async def submit(self, priority: int = 0) -> str:
        """Submit a job and return its id."""
        body = {"model": self._model, "target": "host", "priority": priority}
        response = await self._http.post("/v1/compilations", json=body)
        response.raise_for_status()
        return str(response.json()["id"])

    async def fill(self, queued: int) -> tuple[list[float], float]:
        """Submit until so many jobs are queued; the seconds of each request, and of all together."""
        missing = iter(range(queued - len(self.jobs)))
        seconds: list[float] = []

        async def submitter() -> None:
            for _ in missing:
                start = time.perf_counter()
                self.jobs.append(await self.submit())
                seconds.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(submitter() for _ in range(SUBMITTERS)))
        return seconds, time.perf_counter() - start

    async def read_jobs(self, count: int) -> list[float]:
        """Read queued jobs at random; the seconds of each request."""
        ids = random.Random(0).choices(self.jobs, k=count)
        return await self._read([f"/v1/compilations/{job_id}" for job_id in ids])

    async def read_pages(self, count: int) -> list[float]:
        """Read the newest page of the list; the seconds of each request."""
        return await self._read([f"/v1/compilations?limit={PAGE}"] * count)

    async def _read(self, paths: list[str]) -> list[float]:
        left = iter(paths)
        seconds: list[float] = []

        async def reader() -> None:
            for path in left:
                start = time.perf_counter()
                (await self._http.get(path)).raise_for_status()
                seconds.append(time.perf_counter() - start)

        await asyncio.gather(*(reader() for _ in range(READERS)))
        return seconds

    @asynccontextmanager
    async def following(self, count: int) -> AsyncIterator[None]:
        """Follow as many jobs, each on a connection of its own; all have heard of their job once."""
        heard = [asyncio.Event() for _ in range(count)]

        async def follower(job_id: str, first: asyncio.Event) -> None:
            async with self._http.stream("GET", f"/v1/compilations/{job_id}/events", timeout=None) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("event:"):
                        first.set()

        jobs = self.jobs[-count:] * (1 + count // len(self.jobs))
        followers = [
            asyncio.create_task(follower(job_id, first)) for job_id, first in zip(jobs, heard, strict=False)
        ]
        try:
            await asyncio.gather(*(first.wait() for first in heard))
            yield
        finally:
            for task in followers:
                task.cancel()
            await asyncio.gather(*followers, return_exceptions=True)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Clients]:
    """Clients of an app, with a model that they may compile."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=REQUEST_SECONDS) as http:
        response = await http.post("/v1/models", content=b"a model, as far as the app can tell")
        response.raise_for_status()
        yield Clients(http, str(response.json()["digest"]))


def memory_mib(pid: int) -> float:
    """A process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_seconds(pid: int) -> float:
    """A process's own processor time until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
