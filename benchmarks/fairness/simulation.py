"""A discrete-event simulation of tenants' jobs on workers' slots."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from bessemer.contract.tenant_turns import Standing, next_tenant


class Job(NamedTuple):
    """A job: when it is submitted, by which tenant, and how long it runs. Times are in seconds."""

    at: float
    tenant: str
    seconds: float


class Line(Protocol):
    """The queued jobs, in the order in which workers take them."""

    def add(self, number: int, tenant: str) -> None:
        """Queue a job."""

    def take(self) -> int | None:
        """Remove the next job; None if none is queued."""

    def end(self, tenant: str) -> None:
        """Note that a job of a tenant has ended."""


class FirstComeFirstServed:
    """The order of submission."""

    def __init__(self) -> None:
        self._queued: deque[int] = deque()

    def add(self, number: int, tenant: str) -> None:
        """Queue a job."""
        self._queued.append(number)

    def take(self) -> int | None:
        """Remove the oldest job."""
        return self._queued.popleft() if self._queued else None

    def end(self, tenant: str) -> None:
        """Do nothing."""


class InTurns:
    """The order of the service: ``next_tenant`` decides, and each tenant's jobs keep their order."""

    def __init__(self) -> None:
        self._queued: dict[str, deque[int]] = {}
        self._running: Counter[str] = Counter()
        self._served: dict[str, int] = {}
        self._waiting: dict[str, Standing] = {}
        self._turn = 0

    def add(self, number: int, tenant: str) -> None:
        """Queue a job."""
        self._queued.setdefault(tenant, deque()).append(number)
        self._note(tenant)

    def take(self) -> int | None:
        """Remove the first job of the tenant whose turn it is."""
        tenant = next_tenant(self._waiting.values())
        if tenant is None:
            return None
        self._turn += 1
        self._served[tenant] = self._turn
        self._running[tenant] += 1
        number = self._queued[tenant].popleft()
        self._note(tenant)
        return number

    def end(self, tenant: str) -> None:
        """Note that a job of a tenant has ended."""
        self._running[tenant] -= 1
        self._note(tenant)

    def _note(self, tenant: str) -> None:
        if self._queued.get(tenant):
            self._waiting[tenant] = Standing(self._running[tenant], self._served.get(tenant, 0), tenant)
        else:
            self._waiting.pop(tenant, None)


@dataclass(frozen=True)
class Run:
    """What happened to the jobs.

    Attributes:
        started: when each job started, in seconds; infinite if the simulation ended before.
        claims: how many jobs workers had taken when each was submitted, and when it was taken.
        ended: when the simulation ended.
    """

    started: list[float]
    claims: list[tuple[int, int]]
    ended: float


def simulate(jobs: Sequence[Job], line: Line, slots: int, until_claims: int | None = None) -> Run:
    """Run jobs, which are sorted by their submission, in the order of a line.

    Args:
        jobs: the jobs.
        line: their order.
        slots: how many run at a time.
        until_claims: end after this many jobs have started; by default, when all have ended.
    """
    started = [float("inf")] * len(jobs)
    submitted, taken = [0] * len(jobs), [0] * len(jobs)
    running: list[tuple[float, int]] = []
    arrived = claims = 0
    at = 0.0
    while arrived < len(jobs) or running:
        if running and (arrived == len(jobs) or running[0][0] <= jobs[arrived].at):
            at, ended = heappop(running)
            line.end(jobs[ended].tenant)
        else:
            at = jobs[arrived].at
            while arrived < len(jobs) and jobs[arrived].at == at:
                line.add(arrived, jobs[arrived].tenant)
                submitted[arrived] = claims
                arrived += 1
        while len(running) < slots and (number := line.take()) is not None:
            claims += 1
            started[number], taken[number] = at, claims
            heappush(running, (at + jobs[number].seconds, number))
            if claims == until_claims:
                return Run(started, list(zip(submitted, taken, strict=True)), at)
    return Run(started, list(zip(submitted, taken, strict=True)), at)


def jain_index(shares: Iterable[float]) -> float:
    """Jain's fairness index: 1 if all shares are equal, 1/n if one of n has all.

    ``(Σx)² / (n Σx²)``: R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination for
    Resource Allocation in Shared Computer Systems", DEC Research Report TR-301, 1984.
    """
    values = list(shares)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))
