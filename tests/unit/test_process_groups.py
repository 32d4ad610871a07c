import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from worker.errors import WorkDirError
from worker.supervisor.groups import Group, GroupsFile, outlives, signal_group
from worker.supervisor.processes import Process, read_process
from worker.supervisor.work_dir import claim_work_dir, sweep_abandoned


def process(pid: int, group: int, start_ticks: int, session: int | None = None) -> Process:
    return Process(pid, group, session or group, start_ticks, 0.0, 0.0, zombie=False, threads=1)


LEFT = Group(id=100, start_ticks=5000, uid=None)


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        ((), False),
        ((process(100, 100, 5000),), True),
        ((process(100, 100, 9000),), False),
        ((process(101, 100, 5001),), True),
        ((process(101, 100, 5001, session=7),), False),
        ((process(101, 100, 4000),), False),
        ((process(101, 99, 5001),), False),
    ],
    ids=["gone", "runs", "number reused", "leader gone", "another session", "older", "another group"],
)
def test_a_group_is_told_apart_from_a_later_one_with_its_number(
    running: tuple[Process, ...], expected: bool
) -> None:
    assert outlives(LEFT, running) is expected


def start_sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)


def test_processes_left_by_a_crashed_supervisor_are_ended(tmp_path: Path) -> None:
    with start_sleeper() as left, start_sleeper() as another:
        known = read_process(left.pid)
        assert known is not None
        crashed = GroupsFile(tmp_path / "groups")
        crashed.add(Group(left.pid, known.start_ticks, None))
        crashed.add(Group(another.pid, known.start_ticks - 1000, None))
        # nothing else reaps them here, and a group is empty only after that
        swept = _sweep_and_reap(GroupsFile(tmp_path / "groups"), left)
        assert swept == (left.pid,)
        assert left.returncode == -signal.SIGKILL
        assert another.poll() is None
        another.kill()
    assert (tmp_path / "groups").read_text() == ""


def test_a_process_without_its_own_group_yet_is_ended_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        known = read_process(child.pid)
        assert known is not None
        group = Group(child.pid, known.start_ticks, None)
        assert signal_group(group)
        assert child.wait() == -signal.SIGKILL
    assert not signal_group(group)


def test_a_group_that_ended_is_forgotten(tmp_path: Path) -> None:
    groups = GroupsFile(tmp_path / "groups")
    groups.add(LEFT)
    groups.remove(LEFT.id)
    assert (tmp_path / "groups").read_text() == ""


def test_supervisors_sharing_a_work_folder_have_separate_places_and_users(tmp_path: Path) -> None:
    with claim_work_dir(tmp_path / "work") as first, claim_work_dir(tmp_path / "work") as second:
        assert first.folder != second.folder
        uids = {place.slot_uid(60_000, slot) for place in (first, second) for slot in (0, 1)}
        assert len(uids) == (4 if os.geteuid() == 0 else 1)
    with claim_work_dir(tmp_path / "work") as again:
        assert again.folder == first.folder


def test_jobs_of_a_crashed_supervisor_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "work" / "0" / "jobs" / "job"
    left.mkdir(parents=True)
    with claim_work_dir(tmp_path / "work") as place:
        assert not left.exists()
        assert place.jobs.is_dir()


def test_jobs_of_a_crashed_supervisor_that_never_comes_back_are_removed_by_another(tmp_path: Path) -> None:
    with claim_work_dir(tmp_path / "work") as place:
        left, running = place.folder.parent / "7" / "jobs" / "job", place.jobs / "job"
        for folder in (left, running):
            folder.mkdir(parents=True)
        assert [sweep_abandoned(tmp_path / "work") for _ in range(2)] == [1, 0]
        assert (left.exists(), running.exists()) == (False, True)


def test_a_work_folder_writable_by_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work").chmod(0o777)
    with pytest.raises(WorkDirError, match="writable by other users"), claim_work_dir(tmp_path / "work"):
        pass


def _sweep_and_reap(groups: GroupsFile, left: "subprocess.Popen[bytes]") -> tuple[int, ...]:
    import threading

    reaper = threading.Thread(target=left.wait)
    reaper.start()
    swept = groups.sweep()
    reaper.join()
    return tuple(group.id for group in swept)
