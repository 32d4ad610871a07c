"""The process groups of a supervisor's jobs, kept on disk: its successor kills the groups that outlive it."""

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
        id: the group's id, which is also the process id of its leader and the id of its session.
        start_ticks: when the leader started, in clock ticks since boot. It distinguishes the leader from a
            later process with the same id.
        uid: the slot's user; None if the job runs as the supervisor's user.
    """

    id: int
    start_ticks: int
    uid: int | None


class GroupsFile:
    """The running groups, one per line. Always rewritten atomically, and safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._running: tuple[Group, ...] = ()

    def add(self, group: Group) -> None:
        """Add a running group."""
        with self._lock:
            self._write((*self._running, group))

    def remove(self, group_id: int) -> None:
        """Remove an empty group."""
        with self._lock:
            self._write(tuple(group for group in self._running if group.id != group_id))

    def sweep(self) -> tuple[Group, ...]:
        """Kill the groups that a crashed supervisor left, and return them."""
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
    """Whether processes of a recorded group still run.

    While any member lives, the kernel gives the group's id to no new process. So if the leader has another
    start time, the group was empty in between. Without a leader, the members must be in the job's session
    and, if it has its own user, belong to that user.
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
    """Kill a group until it is empty; False if some process survives for half a minute."""
    deadline = time.monotonic() + KILL_DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if not signal_group(group):
            return True
        time.sleep(_STEP_SECONDS)
    return not _living(group)


def signal_group(group: Group) -> bool:
    """Send SIGKILL once to every process of a group; False if none is left.

    If seccomp does not hold, processes may have left the group. So if the job has its own user, every process
    of that user gets the signal.
    """
    found = bool(group.uid is not None and _kill_user(group.uid))
    try:
        os.killpg(group.id, signal.SIGKILL)
    except ProcessLookupError:
        return _kill_leader(group) or found
    except PermissionError:
        # some kernels raise this if the group has members but this user may signal none of them
        return bool(_living(group))
    return True


def _kill_user(uid: int) -> bool:
    strays = [process for process in processes() if not process.ended and user_of(process.pid) == uid]
    for process in strays:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
    return bool(strays)


def _kill_leader(group: Group) -> bool:
    """Kill the leader alone: just after the fork, it has not created its group yet."""
    leader = read_process(group.id)
    if leader is None or leader.ended or leader.start_ticks != group.start_ticks:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(leader.pid, signal.SIGKILL)
    return True


def _living(group: Group) -> tuple[Process, ...]:
    return tuple(process for process in processes() if process.group == group.id and not process.ended)


def _group(row: list[str]) -> Group:
    _, group_id, start_ticks, uid = row
    return Group(int(group_id), int(start_ticks), None if uid == "None" else int(uid))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
