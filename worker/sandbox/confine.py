"""Confines a job's process, in the order that the layers require, and reports which of them hold.

Every report comes from a probe in the confined process itself.
"""

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import bessemer
import worker
from bessemer.contract.sandbox import Layer, LayerStatus, SandboxMode, SandboxStatus
from worker.errors import short_message
from worker.protocol.order import Confinement, Rlimits
from worker.sandbox import landlock
from worker.sandbox.environment import confine_environment, probe_environment
from worker.sandbox.identity import confine_identity
from worker.sandbox.landlock import (
    READ,
    READ_EXECUTE,
    READ_WRITE_FILE,
    WORK_IN,
    Access,
    Rule,
    confine_landlock,
)
from worker.sandbox.libc import Prctl, close_descriptors, die_with_parent, parent_death_signal, prctl
from worker.sandbox.rlimits import confine_rlimits
from worker.sandbox.seccomp import confine_seccomp

UMASK = 0o077
FILES = ("model-*", "extension-*", "inputs", "cost-model.json", "objects")
"""The files of a job besides its model, by pattern; and the folder of those that it gets while it runs."""
DEVICES = tuple(Path("/dev") / name for name in ("null", "urandom"))
MACHINE = tuple(map(Path, ("/etc/ld.so.cache", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu")))
"""What the loader and the libraries read to identify the machine."""
GPU_NODES = ("nvidiactl", "nvidia-uvm", "nvidia[0-9]", "nvidia[0-9][0-9]")
"""The device nodes by which NVIDIA's driver allocates memory and starts kernels."""
GPU_MACHINE = tuple(map(Path, ("/proc/driver/nvidia", "/proc/devices", "/sys/module/nvidia")))
"""What the driver's library reads to identify driver and GPUs."""

Step = Callable[[], LayerStatus]


def confine(folder: Path, confinement: Confinement, keep: Sequence[int] = ()) -> SandboxStatus:
    """Confine this process to one job, irrevocably.

    The process must be freshly forked, have one thread, and not have opened the job's upload.

    Args:
        folder: the job's folder, with ``model``, ``output``, ``scratch``, further models of entries
            (``model-…``), extensions (``extension-…``), ``objects`` and, for invocations, ``inputs``.
        confinement: the mode, the user and the limits.
        keep: descriptors to leave open besides 0, 1 and 2.

    Returns:
        The status of each layer, probed after it was applied.
    """
    parent = os.getppid()
    os.umask(UMASK)
    die_with_parent(parent)
    if os.getsid(0) != os.getpid():
        os.setsid()
    close_descriptors(keep)
    environment = _attempt(Layer.ENVIRONMENT, probe_environment)
    confine_environment(folder / "scratch")
    if confinement.mode is SandboxMode.OFF:
        return _off(confinement.rlimits)
    steps = (environment, *_identity(confinement.uid, parent), *_restrictions(folder, confinement))
    return SandboxStatus(mode=confinement.mode, layers=steps)


def readable_roots() -> tuple[Path, ...]:
    """The folders with a job's code: the system, Python, the virtual environment, our packages, and zig."""
    system = tuple(map(Path, ("/usr", "/lib", "/lib64", "/bin")))
    python = (Path(sys.prefix), Path(sys.base_prefix))
    packages = tuple(Path(package.__path__[0]).resolve() for package in (worker, bessemer))
    zig = importlib.util.find_spec("ziglang")
    zig_folders = tuple(zig.submodule_search_locations or ()) if zig else ()
    return tuple(dict.fromkeys((*system, *python, *packages, *map(Path, zig_folders))))


def job_rules(folder: Path) -> tuple[Rule, ...]:
    """What a job may open."""
    return (
        *(Rule(root, READ_EXECUTE) for root in readable_roots()),
        *(Rule(path, READ) for path in MACHINE),
        *(Rule(device, READ_WRITE_FILE) for device in DEVICES),
        Rule(Path(worker.__path__[0]).resolve().parent / "LICENSE", READ),
        Rule(folder / "model", READ),
        *(Rule(file, READ) for pattern in FILES for file in folder.glob(pattern)),
        *(Rule(folder / name, WORK_IN) for name in ("output", "scratch")),
    )


def gpu_rules(devices: Path = Path("/dev")) -> tuple[Rule, ...]:
    """What a job may open besides, to run kernels on the machine's GPUs."""
    nodes = (node for pattern in GPU_NODES for node in sorted(devices.glob(pattern)))
    return (
        *(Rule(node, READ_WRITE_FILE | Access.IOCTL_DEV) for node in nodes),
        *(Rule(path, READ) for path in GPU_MACHINE),
    )


def _identity(uid: int | None, parent: int) -> tuple[LayerStatus, LayerStatus]:
    needed = tuple(root for root in (*readable_roots(), Path(os.__file__)) if root.exists())
    identity = _attempt(Layer.UID, lambda: confine_identity(uid, needed, landlock.abi()))
    die_with_parent(parent)
    return _attempt(Layer.PROCESS_GROUP, probe_process_group), identity


def _restrictions(folder: Path, confinement: Confinement) -> tuple[LayerStatus, ...]:
    shared_user = confinement.uid is None
    rules = (*job_rules(folder), *(gpu_rules() if confinement.gpus else ()))
    steps: tuple[tuple[Layer, Step], ...] = (
        (Layer.RLIMITS, lambda: confine_rlimits(confinement.rlimits, shared_user)),
        (Layer.NO_NEW_PRIVS, confine_no_new_privs),
        (Layer.LANDLOCK, lambda: confine_landlock(rules, folder)),
        (Layer.SECCOMP, lambda: confine_seccomp(shared_user, confinement.gpus)),
    )
    return tuple(_attempt(layer, step) for layer, step in steps)


def confine_no_new_privs() -> LayerStatus:
    """The layer ``no-new-privs``: no exec gives a job a new right. Nothing can clear the bit."""
    prctl(Prctl.SET_NO_NEW_PRIVS, 1)
    holds = prctl(Prctl.GET_NO_NEW_PRIVS) == 1
    return LayerStatus(layer=Layer.NO_NEW_PRIVS, holds=holds, required=True)


def probe_process_group() -> LayerStatus:
    """The layer ``process-group``: this process leads its own session and dies with its parent."""
    pid = os.getpid()
    alone = os.getsid(0) == pid and os.getpgid(0) == pid
    mortal = parent_death_signal() == signal.SIGKILL
    note = "" if alone and mortal else f"own session: {alone}; dies with the zygote: {mortal}"
    return LayerStatus(layer=Layer.PROCESS_GROUP, holds=alone and mortal, required=True, note=note)


def _off(rlimits: Rlimits) -> SandboxStatus:
    _attempt(Layer.RLIMITS, lambda: confine_rlimits(rlimits, shared_user=True))
    note = "BESSEMER_SANDBOX is off"
    layers = tuple(LayerStatus(layer=layer, holds=False, required=False, note=note) for layer in Layer)
    return SandboxStatus(mode=SandboxMode.OFF, layers=layers)


def _attempt(layer: Layer, step: Step) -> LayerStatus:
    try:
        return step()
    except (OSError, ImportError, KeyError, RuntimeError, ValueError) as error:
        return LayerStatus(layer=layer, holds=False, required=True, note=short_message(error))
