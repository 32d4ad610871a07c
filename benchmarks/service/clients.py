"""Client operations and the time of each request."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bessemer.telemetry import metrics

SUBMITTERS = 8
READERS = 4
PAGE = 50
REQUEST_SECONDS = 120.0

_FOLLOWERS = re.compile(rf"^{metrics.EVENT_FOLLOWERS.name} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Scrapes:
    """Successive scrapes of ``/metrics``: the seconds of each, and the last text."""

    seconds: list[float]
    page_bytes: int
    followers: int


class Clients:
    """Many clients of one app.

    Attributes:
        model: the digest of a model to compile.
        jobs: ids of queued jobs with default priority.
    """

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self.http = http
        self.model = model
        self.jobs: set[str] = set()

    async def submit(self, priority: int = 0) -> str:
        """Submit a job and return its id."""
        body = {"model": self.model, "target": "host", "priority": priority}
        response = await self.http.post("/v1/compilations", json=body)
        response.raise_for_status()
        return str(response.json()["id"])

    async def submit_many(self, count: int) -> tuple[list[float], float]:
        """Submit more jobs; return the seconds of each request and their total."""
        missing = iter(range(count))
        seconds: list[float] = []

        async def submitter() -> None:
            for _ in missing:
                start = time.perf_counter()
                self.jobs.add(await self.submit())
                seconds.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(submitter() for _ in range(SUBMITTERS)))
        return seconds, time.perf_counter() - start

    async def read_jobs(self, count: int) -> list[float]:
        """Read random queued jobs; return the seconds of each request."""
        ids = random.Random(0).choices(sorted(self.jobs), k=count)
        return await self._read([f"/v1/compilations/{job_id}" for job_id in ids])

    async def read_pages(self, count: int) -> list[float]:
        """Read the first page of the list; return the seconds of each request."""
        return await self._read([f"/v1/compilations?limit={PAGE}"] * count)

    async def scrape(self, count: int) -> Scrapes:
        """Scrape the metrics like Prometheus, one request at a time."""
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            response = (await self.http.get("/metrics")).raise_for_status()
            seconds.append(time.perf_counter() - start)
        found = _FOLLOWERS.search(response.text)
        return Scrapes(seconds, len(response.content), int(float(found[1])) if found else 0)

    async def _read(self, paths: list[str]) -> list[float]:
        left = iter(paths)
        seconds: list[float] = []

        async def reader() -> None:
            for path in left:
                start = time.perf_counter()
                (await self.http.get(path)).raise_for_status()
                seconds.append(time.perf_counter() - start)

        await asyncio.gather(*(reader() for _ in range(READERS)))
        return seconds


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Clients]:
    """Clients of an app, with an uploaded model."""
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
