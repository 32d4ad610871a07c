"""The supervisor's watch over one running job: measures what the job uses, and kills it above a limit.

The kernel's limits apply to single processes. Only this watch limits the memory and processor time of a whole
tree of processes and the size of the job's folder. A job may overshoot by what it does between two samples.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from bessemer.contract.problem import ErrorCode
from worker.settings import Limits
from worker.supervisor.running_job import RunningJob
from worker.supervisor.usage import Meter, Usage
from worker.supervisor.watch_threads import run_apart

INTERVAL_SECONDS = 0.15
CLOSE_INTERVAL_SECONDS = 0.05
TICK_SECONDS = 0.25
SAMPLE_SECONDS = 10.0
"""A sample takes milliseconds. Only a hostile job has so many processes or files that it takes this long."""

CLOSE = 0.5
"""The share of a limit above which samples are taken more often."""


@dataclass(frozen=True)
class Termination:
    """Why the watch killed a job."""

    code: ErrorCode
    detail: str


def exceeded(usage: Usage, limits: Limits) -> ErrorCode | None:
    """The policy: the error of the first limit that is exceeded, if any."""
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
    """How much of its limit the job used, in words."""
    return {
        ErrorCode.TIMEOUT: f"{usage.wall_seconds:.1f} s of {limits.timeout_seconds} s",
        ErrorCode.LIMIT_MEMORY: f"{_mebibytes(usage.memory_bytes)} of {_mebibytes(limits.memory_bytes)}",
        ErrorCode.LIMIT_OUTPUT: f"{usage.output_bytes} bytes of {limits.output_bytes}",
        ErrorCode.LIMIT_DISK: f"{_mebibytes(usage.disk_bytes)} of {_mebibytes(limits.disk_bytes)}",
        ErrorCode.LIMIT_INODES: f"at least {usage.inodes} files and folders of {limits.inodes}",
        ErrorCode.LIMIT_CPU: f"{usage.cpu_seconds:.1f} s of {limits.cpu_seconds:.1f} s",
        ErrorCode.LIMIT_WALL_CLOCK: f"{usage.wall_seconds:.1f} s of {limits.wall_seconds:.1f} s",
    }[code]


def ignore_usage(_usage: Usage) -> None:
    """Do nothing."""


async def watch(
    job: RunningJob,
    limits: Limits,
    cancelled: Callable[[], bool],
    on_usage: Callable[[Usage], None] = ignore_usage,
) -> Termination | None:
    """Watch a job until its first process ends, or kill the whole job.

    Args:
        job: the running job.
        limits: what it may use.
        cancelled: whether the user has cancelled the job; called at every sample, must not block.
        on_usage: called with every sample, must not block.

    Returns:
        Why the job was killed; None if its first process ended by itself. The caller must then kill the
        processes that it left behind.
    """
    meter = Meter(job.pid, job.uid, job.folder, limits, job.baseline_bytes)
    began = time.monotonic()

    def overdue() -> Termination | None:
        return find_termination(Usage.of_time(time.monotonic() - began), limits, cancelled())

    while job.running():
        started = time.monotonic()
        sample = asyncio.ensure_future(run_apart(meter.read))
        termination = await _wait_within_limits(sample, overdue, SAMPLE_SECONDS)
        if termination is None:
            usage = await sample
            on_usage(usage)
            # rest at least as long as the sample took: it may have counted thousands of files
            rest = max(interval_seconds(usage, limits), time.monotonic() - started)
            termination = find_termination(usage, limits, cancelled())
            termination = termination or await _wait_within_limits(
                asyncio.ensure_future(job.wait(rest)), overdue
            )
        if termination is not None:
            await job.kill()
            await asyncio.wait({sample})
            return termination
    return None


async def _wait_within_limits(
    busy: asyncio.Future[Any], overdue: Callable[[], Termination | None], most_seconds: float = inf
) -> Termination | None:
    """Wait for a sample or a rest, and still enforce time limits and cancellation: a job can delay a sample.

    Ticks count, not seconds: if this event loop was blocked, a single tick took longer, and the job is not to
    blame.
    """
    ticks = 0
    while not busy.done():
        await asyncio.wait({busy}, timeout=TICK_SECONDS)
        ticks += 1
        termination = overdue()
        if termination is None and not busy.done() and ticks * TICK_SECONDS > most_seconds:
            termination = Termination(
                ErrorCode.CHILD_MISBEHAVED, f"the job cannot be watched: a sample took {most_seconds} s"
            )
        if termination is not None:
            return termination
    return None


def interval_seconds(usage: Usage, limits: Limits) -> float:
    """How long to rest between two samples: less as fast-growing usage nears its limit."""
    parts = (
        usage.memory_bytes / limits.memory_bytes,
        usage.disk_bytes / limits.disk_bytes,
        usage.inodes / limits.inodes,
        usage.output_bytes / limits.output_bytes,
    )
    return CLOSE_INTERVAL_SECONDS if max(parts) > CLOSE else INTERVAL_SECONDS


def find_termination(usage: Usage, limits: Limits, cancelled: bool) -> Termination | None:
    """Why to kill a job after one sample; None to let it run."""
    if cancelled:
        return Termination(ErrorCode.CANCELLED, "cancelled while it ran")
    code = exceeded(usage, limits)
    return Termination(code, describe(code, usage, limits)) if code else None


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
