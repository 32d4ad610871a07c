"""The layer ``seccomp``: restricts the system calls of a job.

A denied call fails. Only a call of a foreign architecture kills the process.
"""

import errno
import functools
import os
import tempfile
from typing import TYPE_CHECKING

from bessemer.contract.sandbox import Layer, LayerStatus
from worker.sandbox import allowed_syscalls
from worker.sandbox.libc import Prctl, install_filter, prctl

if TYPE_CHECKING:
    import pyseccomp

_FILTERING = 2


@functools.cache
def filter_program(shared_user: bool, gpus: bool = False) -> bytes:
    """The filter as BPF. Building it takes milliseconds, so the zygote does it once for all its children.

    Args:
        shared_user: whether the job runs as the supervisor's user.
        gpus: whether it may make requests to NVIDIA's driver.

    Raises:
        RuntimeError: libseccomp is not installed.
    """
    import pyseccomp

    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    rules.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    owned = () if shared_user else allowed_syscalls.ALLOWED_TO_OWN_USER
    denied = (*allowed_syscalls.DENIED, *(allowed_syscalls.ALLOWED_TO_OWN_USER if shared_user else ()))
    for name in _known((*allowed_syscalls.ALLOWED, *owned)):
        rules.add_rule(pyseccomp.ALLOW, name)
    for name in _known(denied):
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    _add_conditional(rules, shared_user)
    for mask, value in allowed_syscalls.GPU_IOCTLS if gpus else ():
        rules.add_rule(pyseccomp.ALLOW, "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, mask, value))
    return _export(rules)


def confine_seccomp(shared_user: bool, gpus: bool = False) -> LayerStatus:
    """Install the filter and try a denied call. Needs NO_NEW_PRIVS or CAP_SYS_ADMIN."""
    install_filter(filter_program(shared_user, gpus))
    holds = _is_filtering() and _is_denied()
    return LayerStatus(layer=Layer.SECCOMP, holds=holds, required=True)


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    """The calls that this architecture has and this libseccomp knows; others resolve to negative numbers."""
    import pyseccomp

    return tuple(name for name in names if pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name) >= 0)


def _add_conditional(rules: "pyseccomp.SyscallFilter", shared_user: bool) -> None:
    import pyseccomp

    foreign = allowed_syscalls.NAMESPACE_FLAGS | allowed_syscalls.CLONE_PARENT
    thread, files = allowed_syscalls.CLONE_THREAD, allowed_syscalls.CLONE_FILES
    for mask, value in ((foreign | thread, 0), (foreign | thread | files, thread | files)):
        rules.add_rule(pyseccomp.ALLOW, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, mask, value))
    for flag in (allowed_syscalls.MAP_SHARED, allowed_syscalls.MAP_ANONYMOUS):
        rules.add_rule(pyseccomp.ALLOW, "mmap", pyseccomp.Arg(3, pyseccomp.MASKED_EQ, flag, 0))
    shared = allowed_syscalls.MAP_SHARED | allowed_syscalls.MAP_ANONYMOUS
    rules.add_rule(
        pyseccomp.ERRNO(errno.EPERM), "mmap", pyseccomp.Arg(3, pyseccomp.MASKED_EQ, shared, shared)
    )
    rules.add_rule(pyseccomp.ALLOW, "sched_setaffinity", pyseccomp.Arg(0, pyseccomp.EQ, 0))
    # the kernel lets a user of its own change only its own threads, among them TVM's
    others = pyseccomp.ERRNO(errno.EPERM) if shared_user else pyseccomp.ALLOW
    rules.add_rule(others, "sched_setaffinity", pyseccomp.Arg(0, pyseccomp.NE, 0))
    rules.add_rule(pyseccomp.ALLOW, "prlimit64", pyseccomp.Arg(0, pyseccomp.EQ, 0))
    # with a mode, it reserves space beyond RLIMIT_FSIZE and the file's size
    rules.add_rule(pyseccomp.ALLOW, "fallocate", pyseccomp.Arg(1, pyseccomp.EQ, 0))
    rules.add_rule(pyseccomp.ERRNO(errno.EOPNOTSUPP), "fallocate", pyseccomp.Arg(1, pyseccomp.NE, 0))
    for option in allowed_syscalls.PRCTL_OPTIONS:
        rules.add_rule(pyseccomp.ALLOW, "prctl", pyseccomp.Arg(0, pyseccomp.EQ, option))
    for command in allowed_syscalls.FCNTL_COMMANDS:
        rules.add_rule(pyseccomp.ALLOW, "fcntl", pyseccomp.Arg(1, pyseccomp.EQ, command))
    for request in allowed_syscalls.IOCTL_REQUESTS:
        rules.add_rule(pyseccomp.ALLOW, "ioctl", pyseccomp.Arg(1, pyseccomp.EQ, request))


def _export(rules: "pyseccomp.SyscallFilter") -> bytes:
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _is_filtering() -> bool:
    return prctl(Prctl.GET_SECCOMP) == _FILTERING


def _is_denied() -> bool:
    try:
        os.setpgid(0, 0)
    except PermissionError:
        return True
    return False
