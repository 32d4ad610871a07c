"""Which process groups a supervisor has started, on disk: its successor ends those that outlived it."""

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from worker.supervisor.processes import Process, processes, read_process, user_of

KILL_DEADLINE_SECONDS = 30.0
_STEP_SECONDS = 0.005


@dataclass(frozen=True)
class Group:
    """A job's process group.

    Attributes:
        id: the group's id, which is its leader's process id and its session's id.
        start_ticks: when the leader started, in clock ticks since the machine did: tells it from a process
            that got the same id later.
        uid: the slot's user; None where the job has the supervisor's.
    """

    id: int
    start_ticks: int
    uid: int | None


class GroupsFile:
    """The running groups, one a line. Rewritten as a whole, atomically; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._running: tuple[Group, ...] = ()

    def add(self, group: Group) -> None:
        """Note a group that runs."""
        with self._lock:
            self._write((*self._running, group))

    def remove(self, group_id: int) -> None:
        """Forget a group that is empty."""
        with self._lock:
            self._write(tuple(group for group in self._running if group.id != group_id))

    def sweep(self) -> tuple[Group, ...]:
        """End the groups that a crashed supervisor left, and return them."""
        left = tuple(group for group in self._read() if outlives(group, processes()))
        for group in left:
            kill_group(group)
        self._write(())
        return left

    def _write(self, running: tuple[Group, ...]) -> None:
        self._running = running
        boot = _boot_id()
        lines = [f"{boot} {group.id} {group.start_ticks} {group.uid}\n" for group in running]
        temporary = self._path.with_suffix(".new")
        temporary.write_text("".join(lines))
        temporary.replace(self._path)

    def _read(self) -> tuple[Group, ...]:
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return ()
        rows = [line.split() for line in lines]
        return tuple(_group(row) for row in rows if len(row) == 4 and row[0] == _boot_id())


def outlives(group: Group, running: tuple[Process, ...]) -> bool:
    """Whether processes of a group that was noted earlier still run.

    While any member lives, the kernel gives the group's id to no new process. So a leader with another start
    time means that the group had emptied; without a leader, the members must be in the job's session and,
    where it has one, of its user.
    """
    members = [process for process in running if process.group == group.id]
    leaders = [process for process in members if process.pid == group.id]
    if leaders:
        return leaders[0].start_ticks == group.start_ticks
    return any(
        process.session == group.id
        and process.start_ticks >= group.start_ticks
        and (group.uid is None or user_of(process.pid) == group.uid)
        for process in members
    )


def kill_group(group: Group) -> bool:
    """Kill a group until it is empty; False where some of it would not die within half a minute."""
    deadline = time.monotonic() + KILL_DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if not signal_group(group):
            return True
        time.sleep(_STEP_SECONDS)
    return not _living(group)


def signal_group(group: Group) -> bool:
    """Send SIGKILL to every process of a group once; False where there is none left.

    A job with a user of its own might have left its group where seccomp does not hold: all processes of
    that user are meant.
    """
    found = bool(group.uid is not None and _kill_user(group.uid))
    try:
        os.killpg(group.id, signal.SIGKILL)
    except ProcessLookupError:
        return _kill_leader(group) or found
    except PermissionError:
        # on some kernels: the group has members, and none that this user may signal
        return bool(_living(group))
    return True


def _kill_user(uid: int) -> bool:
    strays = [process for process in processes() if not process.zombie and user_of(process.pid) == uid]
    for process in strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
    return bool(strays)


def _kill_leader(group: Group) -> bool:
    """A process that was forked a moment ago has not made its group yet."""
    leader = read_process(group.id)
    if leader is None or leader.zombie or leader.start_ticks != group.start_ticks:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(leader.pid, signal.SIGKILL)
    return True


def _living(group: Group) -> tuple[Process, ...]:
    return tuple(process for process in processes() if process.group == group.id and not process.zombie)


def _group(row: list[str]) -> Group:
    _, group_id, start_ticks, uid = row
    return Group(int(group_id), int(start_ticks), None if uid == "None" else int(uid))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
