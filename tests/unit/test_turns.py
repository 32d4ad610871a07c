"""One job measures at a time, across processes that may be killed or frozen."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.measure.turns import SharedTurns, open_lock

LONG_SECONDS = 60.0


def forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def shared(path: Path, patience_seconds: float = LONG_SECONDS) -> SharedTurns:
    return SharedTurns(open_lock(path), patience_seconds)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "measuring.lock"


def holder(path: Path) -> int:
    """A process that takes a turn and keeps it."""
    reader, writer = os.pipe()

    def hold() -> None:
        with shared(path).turn():
            os.write(writer, b"x")
            signal.pause()

    pid = forked(hold)
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    return pid


def test_measurements_of_several_jobs_never_overlap(path: Path, tmp_path: Path) -> None:
    journal = os.open(tmp_path / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def measure() -> None:
        turns = shared(path)
        for _ in range(20):
            with turns.turn():
                os.write(journal, f"{os.getpid()} begins\n".encode())
                os.sched_yield()
                os.write(journal, f"{os.getpid()} ends\n".encode())

    jobs = [forked(measure) for _ in range(3)]
    assert [os.waitpid(job, 0)[1] for job in jobs] == [0, 0, 0]
    lines = (tmp_path / "journal").read_text().splitlines()
    assert len(lines) == 120
    for begins, ends in zip(lines[::2], lines[1::2], strict=True):
        assert begins.split()[0] == ends.split()[0]
        assert (begins.split()[1], ends.split()[1]) == ("begins", "ends")


def test_a_turn_ends_with_its_process(path: Path) -> None:
    pid = holder(path)
    os.kill(pid, signal.SIGKILL)
    with shared(path).turn():
        pass
    os.waitpid(pid, 0)


def test_a_frozen_holder_is_not_waited_for_forever(path: Path) -> None:
    pid = holder(path)
    os.kill(pid, signal.SIGSTOP)
    with shared(path, patience_seconds=0.05).turn():
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_turn_within_a_turn_ends_with_the_outer_one(path: Path) -> None:
    turns = shared(path)
    with turns.turn():
        with turns.turn():
            pass
        assert not shared(path)._try()
    assert shared(path)._try()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        open_lock(path)
