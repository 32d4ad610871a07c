"""The compilers for NVIDIA GPUs, which the extra ``cuda`` installs: NVRTC, ptxas and their headers."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

_ROOT = "cu13"
_FILES = (
    "lib/libnvrtc.so.13",
    "bin/ptxas",
    "include/cuda_runtime.h",
    "include/crt/host_config.h",
    "include/cccl/cuda/std/cstdint",
)


@cache
def cuda_root() -> Path | None:
    """The folder that NVIDIA's packages share; None if none is installed."""
    found = importlib.util.find_spec("nvidia")
    folders = () if found is None else tuple(found.submodule_search_locations or ())
    return next((path for folder in folders if (path := Path(folder, _ROOT)).is_dir()), None)


@cache
def missing_cuda_parts() -> tuple[str, ...]:
    """The parts that this worker lacks to compile for GPUs; empty if it has all."""
    root = cuda_root()
    if root is None:
        return ("the extra `cuda`",)
    files = tuple(name for name in _FILES if not (root / name).exists())
    bindings = () if _has_bindings() else ("cuda-bindings",)
    return (*files, *bindings)


def _has_bindings() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False
