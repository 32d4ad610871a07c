"""Simulates 1,000,000 jobs of 1,000 tenants: ``make bench-fairness``.

Writes ``benchmarks/results/<date>-fairness.json``. Two scenarios, each first come first served and in turns:

* *bursts*: ten tenants submit half of the jobs at once; the others submit theirs one by one, all the time.
* *backlog*: every tenant has submitted all of its jobs, one tenant after the other, from 100 to 1,900 each.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from benchmarks.fairness.simulation import FirstComeFirstServed, InTurns, Job, Line, Run, jain_index, simulate
from benchmarks.machine import SERVICE_PACKAGES, Machine, describe
from worker.measure.statistics import percentile

RESULTS = Path(__file__).parents[1] / "results"
SEED = 1
JOBS, TENANTS, SLOTS = 1_000_000, 1_000, 64
HEAVY_TENANTS = 10
MEAN_SECONDS = 60.0
LOAD = 0.95
"""The time of all jobs, relative to the slots' time until the last job is submitted."""
LINES: dict[str, Callable[[], Line]] = {"first come first served": FirstComeFirstServed, "in turns": InTurns}


class Bursts(BaseModel):
    """The light tenants' jobs beside the heavy tenants' bursts.

    Attributes:
        wait_seconds_p50: how long a job of a light tenant waits.
        first_wait_seconds_max: how long the first job of a light tenant waits.
        first_overtaken_p50: how many jobs workers take while a light tenant's first job waits.
        makespan_seconds: when the last job ends.
    """

    order: str
    jobs: int
    wait_seconds_p50: float
    wait_seconds_p99: float
    wait_seconds_max: float
    first_wait_seconds_p50: float
    first_wait_seconds_max: float
    first_overtaken_p50: float
    first_overtaken_p99: float
    first_overtaken_max: int
    makespan_seconds: float


class Backlog(BaseModel):
    """What each tenant got while every tenant waited.

    Attributes:
        claims: how many jobs were started in that time.
        jain_jobs: Jain's index of the jobs that each tenant started.
        jain_seconds: Jain's index of the worker seconds of these jobs.
        unserved: tenants without a started job.
    """

    order: str
    claims: int
    jain_jobs: float
    jain_seconds: float
    unserved: int


class FairnessResults(BaseModel):
    """The results of one run."""

    machine: Machine
    measured_at: datetime
    minutes: float
    seed: int
    jobs: int
    tenants: int
    slots: int
    mean_job_seconds: float
    bursts: list[Bursts]
    backlog: list[Backlog]


def main() -> None:
    """Simulate, print tables, write the file."""
    console = Console()
    began = time.monotonic()
    jobs = burst_jobs(random.Random(SEED))
    bursts = [_bursts(order, jobs, simulate(jobs, line(), SLOTS)) for order, line in LINES.items()]
    console.print(_table("light tenants beside bursts", bursts))
    jobs = backlog_jobs(random.Random(SEED))
    claims = min(Counter(job.tenant for job in jobs).values()) * TENANTS
    backlog = [
        _backlog(order, jobs, simulate(jobs, line(), SLOTS, claims), claims) for order, line in LINES.items()
    ]
    console.print(_table("every tenant has a backlog", backlog))
    results = FairnessResults(
        machine=describe(SERVICE_PACKAGES),
        measured_at=datetime.now(UTC),
        minutes=round((time.monotonic() - began) / 60, 1),
        seed=SEED,
        jobs=JOBS,
        tenants=TENANTS,
        slots=SLOTS,
        mean_job_seconds=MEAN_SECONDS,
        bursts=bursts,
        backlog=backlog,
    )
    path = RESULTS / f"{results.measured_at:%Y-%m-%d}-fairness.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    console.print(f"written to {path}")


def burst_jobs(draw: random.Random) -> list[Job]:
    """Half of the jobs are there at the beginning, the others arrive at random moments."""
    span = JOBS * MEAN_SECONDS / SLOTS / LOAD
    heavy = [Job(0.0, _heavy(number), _seconds(draw)) for number in range(JOBS // 2)]
    light = [
        Job(draw.uniform(0, span), f"light-{number % (TENANTS - HEAVY_TENANTS)}", _seconds(draw))
        for number in range(JOBS - len(heavy))
    ]
    return [*heavy, *sorted(light)]


def backlog_jobs(draw: random.Random) -> list[Job]:
    """All jobs are there at the beginning, tenant by tenant in random order."""
    counts = [100 + 1800 * number // (TENANTS - 1) for number in range(TENANTS)]
    counts[-1] += JOBS - sum(counts)
    tenants = list(enumerate(counts))
    draw.shuffle(tenants)
    return [Job(0.0, f"tenant-{name}", _seconds(draw)) for name, count in tenants for _ in range(count)]


def _heavy(number: int) -> str:
    return f"heavy-{number * HEAVY_TENANTS * 2 // JOBS}"


def _seconds(draw: random.Random) -> float:
    """A duration: most jobs are short, and some are long."""
    return draw.lognormvariate(0.0, 1.0) / math.exp(0.5) * MEAN_SECONDS


def _bursts(order: str, jobs: Sequence[Job], run: Run) -> Bursts:
    light = [number for number, job in enumerate(jobs) if job.tenant.startswith("light")]
    waits = [run.started[number] - jobs[number].at for number in light]
    first: dict[str, int] = {}
    for number in light:
        first.setdefault(jobs[number].tenant, number)
    first_waits = [run.started[number] - jobs[number].at for number in first.values()]
    overtaken = [taken - submitted - 1 for submitted, taken in (run.claims[n] for n in first.values())]
    return Bursts(
        order=order,
        jobs=len(light),
        wait_seconds_p50=round(median(waits), 1),
        wait_seconds_p99=round(percentile(waits, 99), 1),
        wait_seconds_max=round(max(waits), 1),
        first_wait_seconds_p50=round(median(first_waits), 1),
        first_wait_seconds_max=round(max(first_waits), 1),
        first_overtaken_p50=median(overtaken),
        first_overtaken_p99=round(percentile([*map(float, overtaken)], 99), 1),
        first_overtaken_max=max(overtaken),
        makespan_seconds=round(run.ended),
    )


def _backlog(order: str, jobs: Sequence[Job], run: Run, claims: int) -> Backlog:
    taken = dict.fromkeys((job.tenant for job in jobs), 0)
    seconds = dict.fromkeys(taken, 0.0)
    for number, job in enumerate(jobs):
        if run.started[number] <= run.ended:
            taken[job.tenant] += 1
            seconds[job.tenant] += job.seconds
    return Backlog(
        order=order,
        claims=claims,
        jain_jobs=round(jain_index(taken.values()), 4),
        jain_seconds=round(jain_index(seconds.values()), 4),
        unserved=sum(not count for count in taken.values()),
    )


def _table(title: str, rows: Sequence[BaseModel]) -> Table:
    table = Table("figure", *(str(getattr(row, "order", "")) for row in rows), title=title)
    for name in type(rows[0]).model_fields:
        if name != "order":
            table.add_row(name, *(f"{getattr(row, name):,}" for row in rows))
    return table


if __name__ == "__main__":
    main()
