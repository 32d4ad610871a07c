"""Imports, once and in the zygote, everything that its children will use."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

OURS = (
    "worker.child",
    "worker.compiling",
    "worker.pipeline.pipeline",
    "worker.formats.inspect",
    "worker.invoke",
)
REHEARSAL = "worker.pipeline.rehearsal"
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
INTRINSICS = "tvm.s_tir.tensor_intrin"
INTRINSICS_OF_TARGETS = ("x86",)


def import_everything() -> None:
    """Import the libraries, then our own modules, rehearse, and freeze the heap so that forks share it."""
    with _quick_stack():
        for name in LIBRARIES:
            importlib.import_module(name)
        _import_intrinsics()
        for name in OURS:
            importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)  # torch's own use of its own pytree
        importlib.import_module(REHEARSAL).rehearse()
    gc.collect()
    gc.freeze()


@contextmanager
def _quick_stack() -> Iterator[None]:
    """Every TVMScript function asks for the stack with source lines and looks at none; leave them out."""
    original = inspect.stack
    inspect.stack = lambda context=1: original(0)
    try:
        yield
    finally:
        inspect.stack = original


def _import_intrinsics() -> None:
    """Import the tensor intrinsics of our targets only.

    The package's ``__init__`` parses those of CUDA, ROCm and Hexagon as well, for twelve seconds. The package
    is entered without running it; MetaSchedule imports it by name and finds it there.
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
