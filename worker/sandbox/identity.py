"""The layer ``uid``: every job slot has a user of its own.

That user owns the job's folder and nothing else, can signal nobody, and its processes can be counted. Python
may lie where only root can read, in root's home; then the job keeps exactly one capability, the one to read,
and Landlock says what.
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
    """How the user is changed."""

    PLAIN = auto()
    """Every capability is dropped."""
    KEEP_READING = auto()
    """CAP_DAC_READ_SEARCH stays."""
    NONE = auto()
    """Root stays, without capabilities: the job could not read its own code otherwise."""


def choose_switch(unreadable: Sequence[Path], may_read_all: bool) -> Switch:
    """The policy.

    Args:
        unreadable: what the job needs and the slot's user cannot read.
        may_read_all: this process has CAP_DAC_READ_SEARCH to keep.
    """
    if not unreadable:
        return Switch.PLAIN
    return Switch.KEEP_READING if may_read_all else Switch.NONE


def confine_identity(uid: int | None, needed: Sequence[Path], landlock_abi: int) -> LayerStatus:
    """Become the slot's user for good.

    Args:
        uid: the slot's user and group; None where the supervisor is not root and there is none.
        needed: folders and files that the job must be able to read.
        landlock_abi: 0 where the kernel has no Landlock; the capability to read then opens every file of the
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
    """Ask with the slot's user as the real one, which is what access(2) goes by."""
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
        # an exec (of the linker) drops capabilities that are not ambient
        prctl(Prctl.CAP_AMBIENT, CAP_AMBIENT_RAISE, capability)
    prctl(Prctl.SET_KEEPCAPS, 0)
    # a change of user hides /proc/PID from everybody without CAP_SYS_PTRACE: the supervisor in a container
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
    """Whether this process is permitted a capability."""
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
        return f"the slot's user cannot read {paths}, and CAP_DAC_READ_SEARCH is not at hand"
    return f"keeps CAP_DAC_READ_SEARCH, within Landlock, to read {paths}"


def _describe_bounds(bounded: bool) -> str:
    return "" if bounded else "no CAP_SETPCAP to empty the bounding set; no-new-privs makes up for it"
