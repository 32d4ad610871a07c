"""The supervisor's watch over one running job: what it uses, what it may, and its end when that is too much.

The kernel's limits hold for single processes. Memory and processor time of a whole tree, and what lies in the
job's folder, are held only by this watch; it may be overshot by what a job can do between two looks.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol

from bessemer.contract.problem import ErrorCode
from worker.settings import Limits
from worker.supervisor.usage import Meter, Usage

INTERVAL_SECONDS = 0.15
CLOSE_INTERVAL_SECONDS = 0.05
TICK_SECONDS = 0.25
LOOK_SECONDS = 10.0
"""A look takes milliseconds; a job that makes it last has too many processes or files to be honest."""

CLOSE = 0.5
"""The part of a limit from which on a job is looked at more often."""


@dataclass(frozen=True)
class Verdict:
    """Why the watch ended a job."""

    code: ErrorCode
    detail: str


class Watched(Protocol):
    """A running job, as the watch needs it."""

    @property
    def pid(self) -> int:
        """The process that leads the job's group."""
        ...

    @property
    def uid(self) -> int | None:
        """The slot's user."""
        ...

    @property
    def folder(self) -> Path:
        """The job's folder."""
        ...

    @property
    def baseline_bytes(self) -> int:
        """The memory that each process of the job shares with the zygote at first."""
        ...

    def running(self) -> bool:
        """Whether the job's first process still runs."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when the job's first process has ended, or after so many seconds."""
        ...

    async def kill(self) -> None:
        """End every process of the job; returns when none is left."""
        ...


def exceeded(usage: Usage, limits: Limits) -> ErrorCode | None:
    """The policy: the error of the first limit that is exceeded; None while all is well."""
    if limits.timeout_seconds is not None and usage.wall_seconds > limits.timeout_seconds:
        return ErrorCode.TIMEOUT
    table = (
        (usage.memory_bytes, limits.memory_bytes, ErrorCode.LIMIT_MEMORY),
        (usage.output_bytes, limits.output_bytes, ErrorCode.LIMIT_OUTPUT),
        (usage.disk_bytes, limits.disk_bytes, ErrorCode.LIMIT_DISK),
        (usage.inodes, limits.inodes, ErrorCode.LIMIT_INODES),
        (usage.cpu_seconds, limits.cpu_seconds, ErrorCode.LIMIT_CPU),
        (usage.wall_seconds, limits.wall_seconds, ErrorCode.LIMIT_WALL_CLOCK),
    )
    return next((code for used, allowed, code in table if used > allowed), None)


def describe(code: ErrorCode, usage: Usage, limits: Limits) -> str:
    """What was used of what was allowed, in words."""
    return {
        ErrorCode.TIMEOUT: f"{usage.wall_seconds:.1f} s of {limits.timeout_seconds} s",
        ErrorCode.LIMIT_MEMORY: f"{_mebibytes(usage.memory_bytes)} of {_mebibytes(limits.memory_bytes)}",
        ErrorCode.LIMIT_OUTPUT: f"{usage.output_bytes} bytes of {limits.output_bytes}",
        ErrorCode.LIMIT_DISK: f"{_mebibytes(usage.disk_bytes)} of {_mebibytes(limits.disk_bytes)}",
        ErrorCode.LIMIT_INODES: f"at least {usage.inodes} files and folders of {limits.inodes}",
        ErrorCode.LIMIT_CPU: f"{usage.cpu_seconds:.1f} s of {limits.cpu_seconds:.1f} s",
        ErrorCode.LIMIT_WALL_CLOCK: f"{usage.wall_seconds:.1f} s of {limits.wall_seconds:.1f} s",
    }[code]


def _ignore(_usage: Usage) -> None:
    """Nobody asks what the job uses."""


async def watch(
    job: Watched, limits: Limits, cancelled: Callable[[], bool], seen: Callable[[Usage], None] = _ignore
) -> Verdict | None:
    """Watch a job until its first process ends, or end the whole job.

    Args:
        job: the running job.
        limits: what it may use.
        cancelled: whether its user wants it stopped; asked at every look, must not block.
        seen: told of every look, must not block.

    Returns:
        Why the job was ended; None where it ended by itself. Processes that it left behind are the caller's
        to kill.
    """
    meter = Meter(job.pid, job.uid, job.folder, limits.memory_bytes, limits.inodes, job.baseline_bytes)
    began = time.monotonic()

    def overdue() -> Verdict | None:
        return judge(Usage.of_time(time.monotonic() - began), limits, cancelled())

    while job.running():
        started = time.monotonic()
        look = asyncio.ensure_future(asyncio.to_thread(meter.read))
        verdict = await _meanwhile(look, overdue, LOOK_SECONDS)
        if verdict is None:
            usage = await look
            seen(usage)
            # a look that took long (thousands of files) is followed by a rest as long
            rest = max(interval_seconds(usage, limits), time.monotonic() - started)
            verdict = judge(usage, limits, cancelled())
            verdict = verdict or await _meanwhile(asyncio.ensure_future(job.wait(rest)), overdue)
        if verdict is not None:
            await job.kill()
            await asyncio.wait({look})
            return verdict
    return None


async def _meanwhile(
    busy: asyncio.Future[Any], overdue: Callable[[], Verdict | None], most_seconds: float = inf
) -> Verdict | None:
    """Wait for a look or a rest, and mind the clock and the user: a job can make a look last.

    Time in ticks: where this loop was held up, one tick lasts, which is no job's fault.
    """
    ticks = 0
    while not busy.done():
        await asyncio.wait({busy}, timeout=TICK_SECONDS)
        ticks += 1
        verdict = overdue()
        if verdict is None and not busy.done() and ticks * TICK_SECONDS > most_seconds:
            verdict = Verdict(
                ErrorCode.CHILD_MISBEHAVED, f"it cannot be watched: a look took {most_seconds} s"
            )
        if verdict is not None:
            return verdict
    return None


def interval_seconds(usage: Usage, limits: Limits) -> float:
    """How long to rest between two looks: what grows fast is looked at more often when it nears its limit."""
    parts = (
        usage.memory_bytes / limits.memory_bytes,
        usage.disk_bytes / limits.disk_bytes,
        usage.inodes / limits.inodes,
        usage.output_bytes / limits.output_bytes,
    )
    return CLOSE_INTERVAL_SECONDS if max(parts) > CLOSE else INTERVAL_SECONDS


def judge(usage: Usage, limits: Limits, cancelled: bool) -> Verdict | None:
    """The verdict on one look at a job."""
    if cancelled:
        return Verdict(ErrorCode.CANCELLED, "cancelled while it ran")
    code = exceeded(usage, limits)
    return Verdict(code, describe(code, usage, limits)) if code else None


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
