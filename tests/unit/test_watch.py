import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bessemer.contract.problem import ErrorCode
from worker.settings import Limits
from worker.supervisor.job import CANCEL_POLL_SECONDS
from worker.supervisor.usage import Usage
from worker.supervisor.watch import (
    CLOSE_INTERVAL_SECONDS,
    INTERVAL_SECONDS,
    TICK_SECONDS,
    describe,
    exceeded,
    find_termination,
    interval_seconds,
    watch,
)

LIMITS = Limits(
    memory_bytes=100,
    disk_bytes=200,
    inodes=10,
    file_bytes=100,
    output_bytes=50,
    cpu_seconds=4,
    wall_seconds=8,
    timeout_seconds=6,
)
AT_THE_LIMIT = Usage(
    memory_bytes=100, disk_bytes=200, inodes=10, output_bytes=50, cpu_seconds=4, wall_seconds=6
)

AMPLE = Limits(1 << 50, 1 << 50, 1 << 20, 1 << 50, 1 << 50, cpu_seconds=1e9, wall_seconds=1e9)
CANCEL_AIM_SECONDS = 2.0


@pytest.mark.parametrize(
    ("usage", "limits", "code"),
    [
        (AT_THE_LIMIT, LIMITS, None),
        (replace(AT_THE_LIMIT, memory_bytes=101), LIMITS, ErrorCode.LIMIT_MEMORY),
        (replace(AT_THE_LIMIT, disk_bytes=201), LIMITS, ErrorCode.LIMIT_DISK),
        (replace(AT_THE_LIMIT, inodes=11), LIMITS, ErrorCode.LIMIT_INODES),
        (replace(AT_THE_LIMIT, output_bytes=51), LIMITS, ErrorCode.LIMIT_OUTPUT),
        (replace(AT_THE_LIMIT, cpu_seconds=4.1), LIMITS, ErrorCode.LIMIT_CPU),
        (replace(AT_THE_LIMIT, wall_seconds=6.1), LIMITS, ErrorCode.TIMEOUT),
        (replace(AT_THE_LIMIT, wall_seconds=7.9), replace(LIMITS, timeout_seconds=None), None),
        (
            replace(AT_THE_LIMIT, wall_seconds=8.1),
            replace(LIMITS, timeout_seconds=None),
            ErrorCode.LIMIT_WALL_CLOCK,
        ),
        (
            replace(AT_THE_LIMIT, wall_seconds=8.1),
            replace(LIMITS, timeout_seconds=60),
            ErrorCode.LIMIT_WALL_CLOCK,
        ),
        (replace(AT_THE_LIMIT, disk_bytes=201, output_bytes=51), LIMITS, ErrorCode.LIMIT_OUTPUT),
    ],
)
def test_the_first_limit_exceeded_decides(usage: Usage, limits: Limits, code: ErrorCode | None) -> None:
    assert exceeded(usage, limits) is code


def test_a_cancelled_job_counts_as_cancelled_at_any_usage() -> None:
    termination = find_termination(replace(AT_THE_LIMIT, memory_bytes=1 << 40), LIMITS, cancelled=True)
    assert termination is not None
    assert termination.code is ErrorCode.CANCELLED


def test_a_verdict_names_usage_and_limit() -> None:
    usage = replace(AT_THE_LIMIT, memory_bytes=3 << 20)
    limits = replace(LIMITS, memory_bytes=2 << 20)
    assert describe(ErrorCode.LIMIT_MEMORY, usage, limits) == "3.0 MiB of 2.0 MiB"


@pytest.mark.parametrize(
    ("usage", "seconds"),
    [
        (Usage(50, 100, 5, 25, cpu_seconds=4, wall_seconds=6), INTERVAL_SECONDS),
        (Usage(51, 0, 0, 0, cpu_seconds=0, wall_seconds=0), CLOSE_INTERVAL_SECONDS),
        (Usage(0, 101, 0, 0, cpu_seconds=0, wall_seconds=0), CLOSE_INTERVAL_SECONDS),
        (Usage(0, 0, 6, 0, cpu_seconds=0, wall_seconds=0), CLOSE_INTERVAL_SECONDS),
        (Usage(0, 0, 0, 26, cpu_seconds=0, wall_seconds=0), CLOSE_INTERVAL_SECONDS),
    ],
)
def test_a_job_near_a_limit_is_checked_more_often(usage: Usage, seconds: float) -> None:
    assert interval_seconds(usage, LIMITS) == seconds


@dataclass
class Resting:
    """A job that ends after its first rest, which the test prolongs."""

    folder: Path
    rests: int = 0
    pid = os.getpid()
    uid = None
    baseline_bytes = 0

    def running(self) -> bool:
        return self.rests == 0

    async def wait(self, _seconds: float) -> None:
        await asyncio.sleep(0.1)
        self.rests += 1

    async def kill(self) -> None:
        self.rests = -1


async def test_a_late_wakeup_is_not_the_jobs_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.supervisor.watch.TICK_SECONDS", 0.001)
    monkeypatch.setattr("worker.supervisor.watch.INTERVAL_SECONDS", 0.001)
    job = Resting(tmp_path)
    assert await watch(job, AMPLE, lambda: False) is None
    assert job.rests == 1


class Endless(Resting):
    """A job that never ends by itself; other sleepers sleep long."""

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(600)


async def test_a_cancelled_job_is_killed_at_the_next_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.supervisor.watch.TICK_SECONDS", 0.001)
    job = Endless(tmp_path)
    answers = iter([False, False, False, True])
    termination = await watch(job, AMPLE, lambda: next(answers))
    assert termination is not None
    assert (termination.code, job.rests, list(answers)) == (ErrorCode.CANCELLED, -1, [])


async def test_a_job_is_watched_while_every_thread_waits_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.supervisor.watch.TICK_SECONDS", 0.001)
    answered, loop = threading.Event(), asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        waiting = loop.run_in_executor(None, answered.wait, 60)
        try:
            termination = await asyncio.wait_for(watch(Endless(tmp_path), AMPLE, lambda: True), 30)
        finally:
            answered.set()
            await waiting
    assert termination is not None
    assert termination.code is ErrorCode.CANCELLED


def test_a_cancel_kills_within_one_poll_and_one_check() -> None:
    assert CANCEL_POLL_SECONDS + max(TICK_SECONDS, INTERVAL_SECONDS) <= CANCEL_AIM_SECONDS / 4
