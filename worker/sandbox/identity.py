"""The layer ``uid``: every job slot has its own user.

That user owns only the job's folder, can signal only its own processes, and makes them countable. If Python
is installed where only root can read it, the job keeps exactly one capability, CAP_DAC_READ_SEARCH, and
Landlock restricts what it can read.
"""

import os
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from bessemer.contract.sandbox import Layer, LayerStatus
from worker.sandbox.kernel import (
    CAP_AMBIENT_RAISE,
    CAP_DAC_READ_SEARCH,
    Prctl,
    prctl,
    set_capabilities,
)


class Switch(Enum):
    """How to change the user."""

    PLAIN = auto()
    """Every capability is dropped."""
    KEEP_READING = auto()
    """CAP_DAC_READ_SEARCH stays."""
    NONE = auto()
    """The job stays root, without capabilities: otherwise it could not read its own code."""


def choose_switch(unreadable: Sequence[Path], may_read_all: bool) -> Switch:
    """The policy.

    Args:
        unreadable: paths that the job needs and the slot's user cannot read.
        may_read_all: whether this process has CAP_DAC_READ_SEARCH.
    """
    if not unreadable:
        return Switch.PLAIN
    return Switch.KEEP_READING if may_read_all else Switch.NONE


def confine_identity(uid: int | None, needed: Sequence[Path], landlock_abi: int) -> LayerStatus:
    """Become the slot's user, irrevocably.

    Args:
        uid: the slot's user and group; None if the supervisor is not root.
        needed: folders and files that the job must be able to read.
        landlock_abi: 0 if the kernel has no Landlock. The capability then gives access to every file of the
            machine, and the layer does not hold.

    Raises:
        OSError: root lacks the capabilities to change its user.
    """
    if uid is None:
        return LayerStatus(
            layer=Layer.UID,
            holds=False,
            required=False,
            note="the supervisor is not root: the job runs as the supervisor's own user",
        )
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    unreadable = _unreadable(uid, needed)
    switch = choose_switch(unreadable, has_capability(CAP_DAC_READ_SEARCH))
    kept = frozenset({CAP_DAC_READ_SEARCH}) if switch is Switch.KEEP_READING else frozenset[int]()
    bounded = _drop_bounding_set(kept)
    _become(os.getuid() if switch is Switch.NONE else uid, kept)
    return _status(uid, switch, unreadable, bounded, landlock_abi)


def _unreadable(uid: int, needed: Sequence[Path]) -> tuple[Path, ...]:
    """Check as the slot's real user, which access(2) uses."""
    os.setresuid(uid, -1, -1)
    try:
        return tuple(path for path in needed if not os.access(path, _access_mode(path)))
    finally:
        os.setresuid(0, -1, -1)


def _access_mode(path: Path) -> int:
    return os.R_OK | os.X_OK if path.is_dir() else os.R_OK


def _become(uid: int, kept: frozenset[int]) -> None:
    prctl(Prctl.SET_KEEPCAPS, 1)
    os.setresuid(uid, uid, uid)
    set_capabilities(kept)
    for capability in kept:
        # an exec of the linker drops capabilities that are not ambient
        prctl(Prctl.CAP_AMBIENT, CAP_AMBIENT_RAISE, capability)
    prctl(Prctl.SET_KEEPCAPS, 0)
    # a change of user hides /proc/PID from a supervisor without CAP_SYS_PTRACE, such as one in a container
    prctl(Prctl.SET_DUMPABLE, 1)


def _drop_bounding_set(kept: frozenset[int]) -> bool:
    capability = 0
    while True:
        try:
            present = prctl(Prctl.CAPBSET_READ, capability)
        except OSError:
            return True
        try:
            if present and capability not in kept:
                prctl(Prctl.CAPBSET_DROP, capability)
        except PermissionError:
            return False
        capability += 1


def has_capability(capability: int) -> bool:
    """Whether this process has a capability in its permitted set."""
    return bool(_capabilities()["CapPrm"] & 1 << capability)


def _capabilities() -> dict[str, int]:
    lines = Path("/proc/self/status").read_text().splitlines()
    pairs = [line.split() for line in lines if line.startswith("Cap")]
    return {name.rstrip(":"): int(value, 16) for name, value in pairs}


def _status(
    uid: int, switch: Switch, unreadable: tuple[Path, ...], bounded: bool, landlock_abi: int
) -> LayerStatus:
    switched = os.getresuid() == (uid, uid, uid) and os.getresgid() == (uid, uid, uid)
    allowed = 1 << CAP_DAC_READ_SEARCH if switch is Switch.KEEP_READING else 0
    capabilities = _capabilities()
    surplus = any(capabilities[name] & ~allowed for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"))
    holds = switched and not surplus and (switch is not Switch.KEEP_READING or landlock_abi > 0)
    note = "; ".join(filter(None, (_describe(switch, unreadable), _describe_bounds(bounded))))
    return LayerStatus(layer=Layer.UID, holds=holds, required=True, note=note)


def _describe(switch: Switch, unreadable: tuple[Path, ...]) -> str:
    if not unreadable:
        return ""
    paths = ", ".join(map(str, unreadable))
    if switch is Switch.NONE:
        return f"the slot's user cannot read {paths}, and CAP_DAC_READ_SEARCH is not available"
    return f"keeps CAP_DAC_READ_SEARCH, within Landlock, to read {paths}"


def _describe_bounds(bounded: bool) -> str:
    return "" if bounded else "no CAP_SETPCAP to empty the bounding set; no-new-privs has the same effect"
