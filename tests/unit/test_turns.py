"""One job measures at a time, across supervisors that may be killed or frozen."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from worker.errors import WorkDirError
from worker.measure.turns import GrantedTurns
from worker.settings import TurnLimits
from worker.supervisor.turns import HostTurns, make_lock_files

LONG_SECONDS = 60.0


class Job:
    """A job that measures; keeps the names of the jobs in the order of their turns."""

    def __init__(
        self,
        name: str,
        journal: list[str],
        lock: Path,
        patience: float = LONG_SECONDS,
        turn: float = LONG_SECONDS,
    ) -> None:
        self.granted = asyncio.Event()
        self.turns = HostTurns(TurnLimits(lock, patience, turn), self._grant)
        self._name, self._journal = name, journal

    def _grant(self) -> None:
        self._journal.append(self._name)
        self.granted.set()

    async def begin(self) -> None:
        self.granted.clear()
        self.turns.begin()
        await self.granted.wait()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    make_lock_files(tmp_path / "measuring")
    return tmp_path / "measuring"


def holder(lock: Path) -> int:
    """A process that takes a turn and keeps it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:

        async def hold() -> None:
            await Job("holder", [], lock).begin()
            os.write(writer, b"x")
            signal.pause()

        try:
            asyncio.run(hold())
        finally:
            os._exit(1)
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    return pid


def test_turns_of_several_jobs_never_overlap(lock: Path) -> None:
    measuring: list[str] = []
    overlaps: list[str] = []

    async def measure(name: str) -> None:
        job = Job(name, [], lock)
        for _ in range(5):
            await job.begin()
            overlaps.extend(measuring)
            measuring.append(name)
            await asyncio.sleep(0.001)
            measuring.remove(name)
            await job.turns.close()

    async def all_of_them() -> None:
        await asyncio.gather(*map(measure, "abc"))

    asyncio.run(all_of_them())
    assert not overlaps


def test_a_job_that_waits_comes_before_the_next_turn_of_the_holder(lock: Path) -> None:
    journal: list[str] = []

    async def compete() -> None:
        greedy, patient = Job("greedy", journal, lock), Job("patient", journal, lock)
        await greedy.begin()
        waiting = asyncio.create_task(patient.begin())
        await asyncio.sleep(0.05)
        await greedy.turns.close()
        again = asyncio.create_task(greedy.begin())
        await waiting
        await patient.turns.close()
        await again
        await greedy.turns.close()

    asyncio.run(compete())
    assert journal == ["greedy", "patient", "greedy"]


@pytest.mark.parametrize(
    ("end", "patience"), [(signal.SIGKILL, LONG_SECONDS), (signal.SIGSTOP, 0.05)], ids=["killed", "frozen"]
)
def test_a_supervisor_that_ends_or_freezes_is_not_waited_for(
    lock: Path, end: signal.Signals, patience: float
) -> None:
    pid = holder(lock)
    os.kill(pid, end)
    asyncio.run(_one_turn(lock, patience))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


async def _one_turn(lock: Path, patience: float) -> None:
    job = Job("next", [], lock, patience)
    await job.begin()
    await job.turns.close()


def test_a_turn_that_lasts_too_long_is_followed_by_the_next(lock: Path) -> None:
    async def compete() -> None:
        hostile, other = Job("hostile", [], lock, turn=0.05), Job("other", [], lock)
        await hostile.begin()
        await other.begin()
        await other.turns.close()
        await hostile.turns.close()

    asyncio.run(compete())


def test_a_turn_within_a_turn_ends_with_the_outer_one() -> None:
    said: list[str] = []
    reader, writer = os.pipe()
    os.write(writer, b"\0")
    turns = GrantedTurns(lambda: said.append("request"), lambda: said.append("end"), reader)
    with turns.turn():
        with turns.turn():
            pass
        assert said == ["request"]
    assert said == ["request", "end"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "measuring.next").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkDirError, match=r"measuring\.next cannot be opened"):
        make_lock_files(tmp_path / "measuring")
