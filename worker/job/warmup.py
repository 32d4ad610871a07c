"""Imports in the zygote everything that its children will use."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from worker.job.huge_pages import collapse_memory
from worker.quick_stack import quick_stack

LIBRARIES = (
    "numpy",
    "torch",
    "torch.export",
    "torch._dynamo",
    "torch._export.converter",
    "torch.fx",
    "xgboost",
    "tvm",
    "tvm.relax",
    "tvm.relax.frontend.torch",
    "tvm.s_tir.meta_schedule",
)
TVM_FOR_CUDA = "tvm_runtime_cuda"
INTRINSICS = "tvm.s_tir.tensor_intrin"
INTRINSICS_OF_TARGETS = ("x86", "arm_cpu")


def import_everything() -> None:
    """Import the libraries and our own modules, warm up the compiler, and prepare the heap for forks."""
    warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)  # torch's own use of its own pytree
    gc.disable()
    _keep_progress_bars_without_a_thread()
    _keep_off_gpus()
    with quick_stack():
        for name in LIBRARIES:
            importlib.import_module(name)
        _import_intrinsics()
        _import_ours()
    gc.collect()
    gc.freeze()
    collapse_memory()
    gc.enable()


def _keep_off_gpus() -> None:
    """Let neither torch nor TVM start CUDA: a process that has cannot fork one that uses a GPU.

    torch computes on the processor here, and libraries open the driver themselves. TVM's part for CUDA loads
    where a build of torch for CUDA has loaded CUDA's runtime.
    """
    importlib.import_module("torch").cuda.is_available = _offers_no_gpu
    libraries: Any = importlib.import_module("tvm_ffi.libinfo")
    libraries.load_lib_ctypes = partial(_load_unless_for_cuda, libraries.load_lib_ctypes)


def _offers_no_gpu() -> bool:
    return False


def _load_unless_for_cuda(
    load: Callable[..., object], package: str, target_name: str, mode: str, extra_lib_paths: list[Path]
) -> object:
    if target_name == TVM_FOR_CUDA:
        raise OSError(f"{target_name} is not used")
    return load(package, target_name, mode, extra_lib_paths)


def _keep_progress_bars_without_a_thread() -> None:
    """Stop the monitor thread of tqdm, by which torch.fx shows progress: forks would lack the thread."""
    if importlib.util.find_spec("tqdm") is not None:
        importlib.import_module("tqdm").tqdm.monitor_interval = 0


def _import_ours() -> tuple[ModuleType, ...]:
    from worker.compiler.frontend import load
    from worker.compiler.pipeline import pipeline
    from worker.job import child, compilation, invocation
    from worker.job.compiler_warmup import warm_up_compiler

    warm_up_compiler()
    return load, pipeline, child, compilation, invocation


def _import_intrinsics() -> None:
    """Import the tensor intrinsics of our targets only.

    The package's ``__init__`` takes twelve seconds to parse those of CUDA, ROCm and Hexagon as well. So the
    package is registered without running it; MetaSchedule imports it by name and finds it.
    """
    spec = importlib.util.find_spec(INTRINSICS)
    if spec is None:
        raise ModuleNotFoundError(INTRINSICS)
    package = importlib.util.module_from_spec(spec)
    sys.modules[INTRINSICS] = package
    parent, _, name = INTRINSICS.rpartition(".")
    setattr(sys.modules[parent], name, package)
    for target in INTRINSICS_OF_TARGETS:
        importlib.import_module(f"{INTRINSICS}.{target}")
