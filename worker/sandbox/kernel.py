"""System calls that the confinement needs and Python lacks."""

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

_LIBC = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_VERSION_3 = 0x20080522
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_WORD_BITS = 32


class Prctl(IntEnum):
    """The operations of prctl(2) used here."""

    SET_PDEATHSIG = 1
    GET_PDEATHSIG = 2
    SET_DUMPABLE = 4
    SET_KEEPCAPS = 8
    GET_SECCOMP = 21
    SET_SECCOMP = 22
    CAPBSET_READ = 23
    CAPBSET_DROP = 24
    SET_CHILD_SUBREAPER = 36
    SET_NO_NEW_PRIVS = 38
    GET_NO_NEW_PRIVS = 39
    CAP_AMBIENT = 47


CAP_AMBIENT_RAISE = 2
CAP_DAC_READ_SEARCH = 2


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityWord(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def prctl(operation: Prctl, *arguments: int) -> int:
    """Call prctl(2); missing arguments are 0.

    Raises:
        OSError: the kernel refused.
    """
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_LIBC.prctl(ctypes.c_int(operation), *padded))


def syscall(number: int, *arguments: int | ctypes.Array[ctypes.c_char] | ctypes.c_void_p | None) -> int:
    """Call a system call by its number.

    Raises:
        OSError: the kernel refused.
    """
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    _LIBC.syscall.restype = ctypes.c_long
    return _checked(_LIBC.syscall(ctypes.c_long(number), *words))


def parent_death_signal() -> int:
    """The signal that this process gets when its parent ends; 0 for none."""
    number = ctypes.c_int(0)
    _checked(_LIBC.prctl(ctypes.c_int(Prctl.GET_PDEATHSIG), ctypes.byref(number), 0, 0, 0))
    return number.value


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends.

    A change of user clears this, and descendants do not inherit it.

    Raises:
        ProcessLookupError: the parent has already ended.
    """
    prctl(Prctl.SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError("the parent process has ended")


def close_descriptors(keep: Sequence[int]) -> None:
    """Close every descriptor except 0, 1, 2 and those in ``keep``."""
    start = 3
    for descriptor in sorted(keep):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))


def install_filter(program: bytes) -> None:
    """Install a seccomp filter.

    Args:
        program: classic BPF instructions, 8 bytes each.

    Raises:
        OSError: the kernel refused.
    """

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    instructions = Program(len(program) // 8, program)
    mode_filter = 2
    _checked(
        _LIBC.prctl(
            ctypes.c_int(Prctl.SET_SECCOMP), ctypes.c_ulong(mode_filter), ctypes.byref(instructions), 0, 0
        )
    )


@contextmanager
def file_user(uid: int) -> Iterator[None]:
    """Access files and ``/proc`` as another user and group while the context lasts, in this thread only.

    Does nothing if this process may not change its user.
    """
    _LIBC.setfsgid(ctypes.c_uint(uid))
    _LIBC.setfsuid(ctypes.c_uint(uid))
    try:
        yield
    finally:
        _LIBC.setfsuid(ctypes.c_uint(os.geteuid()))
        _LIBC.setfsgid(ctypes.c_uint(os.getegid()))


def set_capabilities(capabilities: frozenset[int]) -> None:
    """Set the effective, permitted and inheritable capabilities of this thread.

    Raises:
        OSError: a capability is not permitted.
    """
    words = (_CapabilityWord * 2)()
    for capability in capabilities:
        word, bit = words[capability // _WORD_BITS], 1 << capability % _WORD_BITS
        word.effective |= bit
        word.permitted |= bit
        word.inheritable |= bit
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    _LIBC.syscall.restype = ctypes.c_long
    number = ctypes.c_long(_SYS_CAPSET[os.uname().machine])
    _checked(_LIBC.syscall(number, ctypes.byref(header), ctypes.byref(words)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
