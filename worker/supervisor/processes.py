"""The machine's processes, read from ``/proc``."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_CAP_SYS_PTRACE = 19
_MAX_FILE_BYTES = 1 << 16


@dataclass(frozen=True)
class Process:
    """One process. ``cpu_seconds`` is its own time, ``waited_cpu_seconds`` the time of reaped children.

    A zombie with several threads still runs: only its main thread has ended.
    """

    pid: int
    group: int
    session: int
    start_ticks: int
    cpu_seconds: float
    waited_cpu_seconds: float
    zombie: bool
    threads: int

    @property
    def ended(self) -> bool:
        """Whether no thread of the process runs."""
        return self.zombie and self.threads <= 1

    @property
    def view(self) -> str:
        """The folder of ``/proc`` that shows the process's memory and files.

        The folder of a main thread that has ended shows neither; those of the other threads do.
        """
        folder = f"/proc/{self.pid}"
        if not self.zombie:
            return folder
        return next((task for task in _tasks(folder) if not _has_ended(task)), folder)


def processes(besides: frozenset[int] = frozenset()) -> tuple[Process, ...]:
    """Every visible process, except those with the given ids."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    found = [read_process(pid) for pid in pids if pid not in besides]
    return tuple(process for process in found if process is not None)


def read_process(pid: int) -> Process | None:
    """One process; None if it is gone."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # the name, in parentheses, may contain anything
    fields = text[text.rindex(")") + 2 :].split()
    user, system, waited_user, waited_system = (int(field) for field in fields[11:15])
    return Process(
        pid=pid,
        group=int(fields[2]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        cpu_seconds=(user + system) / CLOCK_TICKS,
        waited_cpu_seconds=(waited_user + waited_system) / CLOCK_TICKS,
        zombie=fields[0] in "ZX",
        threads=int(fields[17]),
    )


@functools.cache
def may_trace() -> bool:
    """Whether this process has CAP_SYS_PTRACE."""
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(effective >> _CAP_SYS_PTRACE & 1)


def user_of(pid: int) -> int | None:
    """The real user of a process; None if it is gone. The owner of ``/proc/PID`` may differ."""
    try:
        lines = _read(f"/proc/{pid}/status").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def private_bytes(view: str) -> int:
    """An upper bound of a process's own memory: anonymous and shared memory, swap, page tables.

    Pages that forks still share count fully in each process.

    Args:
        view: the process's folder in ``/proc``: see ``Process.view``.
    """
    try:
        status = _read(f"{view}/status")
    except OSError:
        return 0
    return sum(_kibibytes(status, field) for field in ("RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"))


def proportional_bytes(view: str) -> int | None:
    """The same, but each shared page is divided among its processes; None if access is denied.

    Takes milliseconds: the kernel walks the page table.
    """
    try:
        text = _read(f"{view}/smaps_rollup")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        return None
    return sum(_kibibytes(text, field) for field in ("Pss_Anon:", "Pss_Shmem:", "SwapPss:"))


def _tasks(folder: str) -> tuple[str, ...]:
    try:
        return tuple(str(task) for task in Path(f"{folder}/task").iterdir())
    except OSError:
        return ()


def _has_ended(task: str) -> bool:
    try:
        text = _read(f"{task}/stat")
    except OSError:
        return True
    return text[text.rindex(")") + 2] in "ZX"


def _kibibytes(text: str, name: str) -> int:
    """A figure of a table; 0 if the table lacks it, because the process has ended."""
    start = text.find(f"\n{name}")
    return int(text[start + len(name) + 1 :].split(maxsplit=1)[0]) << 10 if start >= 0 else 0


def _read(path: str) -> str:
    """Read a small kernel file, several times faster than pathlib does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)
