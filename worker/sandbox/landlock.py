"""The layer ``landlock``: restricts which files a job may open, and forbids connections and outside signals.

The kernel's interface: https://docs.kernel.org/userspace-api/landlock.html. Landlock does not cover stat(2).
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from bessemer.contract.sandbox import Layer, LayerStatus
from worker.sandbox.kernel import syscall

_SYS_CREATE_RULESET = 444
_SYS_ADD_RULE = 445
_SYS_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_ABI_REFER, _ABI_TRUNCATE, _ABI_NETWORK, _ABI_IOCTL, _ABI_SCOPES = 2, 3, 4, 5, 6


class Access(IntFlag):
    """Rights on files."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_ON_FILES = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV
_ALL_NETWORK = 0b11
_ALL_SCOPES = 0b11

READ = Access.READ_FILE | Access.READ_DIR
READ_EXECUTE = READ | Access.EXECUTE
READ_WRITE_FILE = Access.READ_FILE | Access.WRITE_FILE
WORK_IN = (
    READ
    | Access.WRITE_FILE
    | Access.REMOVE_DIR
    | Access.REMOVE_FILE
    | Access.MAKE_DIR
    | Access.MAKE_REG
    | Access.REFER
    | Access.TRUNCATE
)
"""No links, pipes, sockets or devices, which could mislead later readers of the folder."""


@dataclass(frozen=True)
class Rule:
    """The access to a path and everything beneath it. Missing paths are skipped."""

    path: Path
    access: Access


def abi() -> int:
    """The kernel's version of Landlock; 0 if it has none."""
    try:
        return syscall(_SYS_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def handled_access(version: int) -> Access:
    """The rights that this version knows. They are denied unless a rule allows them."""
    handled = Access((1 << 13) - 1)
    for right, since in (
        (Access.REFER, _ABI_REFER),
        (Access.TRUNCATE, _ABI_TRUNCATE),
        (Access.IOCTL_DEV, _ABI_IOCTL),
    ):
        if version >= since:
            handled |= right
    return handled


def ruleset_attribute(version: int) -> bytes:
    """The kernel's ``struct landlock_ruleset_attr``, with the fields of this version."""
    words = [int(handled_access(version))]
    if version >= _ABI_NETWORK:
        words.append(_ALL_NETWORK)
    if version >= _ABI_SCOPES:
        words.append(_ALL_SCOPES)
    return struct.pack(f"={len(words)}Q", *words)


def confine_landlock(rules: Iterable[Rule], forbidden: Path) -> LayerStatus:
    """Deny this process and its descendants every file without a rule. Needs NO_NEW_PRIVS.

    Args:
        rules: the allowed access.
        forbidden: an existing folder that no rule allows to list, for the probe.
    """
    version = abi()
    if not version:
        return LayerStatus(
            layer=Layer.LANDLOCK, holds=False, required=True, note="the kernel offers no Landlock"
        )
    _restrict(rules, version)
    holds = _is_denied(forbidden)
    return LayerStatus(layer=Layer.LANDLOCK, holds=holds, required=True, note=_describe(version))


def _restrict(rules: Iterable[Rule], version: int) -> None:
    attribute = ruleset_attribute(version)
    ruleset = syscall(_SYS_CREATE_RULESET, ctypes.create_string_buffer(attribute), len(attribute), 0)
    try:
        for rule in rules:
            _allow(ruleset, rule, handled_access(version))
        syscall(_SYS_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, rule: Rule, handled: Access) -> None:
    try:
        descriptor = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        access = rule.access & handled
        if not rule.path.is_dir():
            access &= _ON_FILES
        beneath = struct.pack("=Qi", int(access), descriptor)
        syscall(_SYS_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.create_string_buffer(beneath), 0)
    finally:
        os.close(descriptor)


def _is_denied(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    except PermissionError:
        return True
    return False


def _describe(version: int) -> str:
    missing = [
        what
        for what, since in (
            ("moves between folders", _ABI_REFER),
            ("truncation", _ABI_TRUNCATE),
            ("connections", _ABI_NETWORK),
            ("signals", _ABI_SCOPES),
        )
        if version < since
    ]
    return f"ABI {version}" + (f", which does not cover {', '.join(missing)}" if missing else "")
