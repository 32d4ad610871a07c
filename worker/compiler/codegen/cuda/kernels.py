"""Lowers functions that are scheduled for a GPU to CUDA source and the launches that each call makes.

::

    fused_matmul_relu(x, w, y)     →   __global__ fused_matmul_relu_kernel(y, x, w)      in the source
                                       grid 8 × 1 × 1, blocks of 16 × 16 × 1, (y, x, w)  a ``Launch``
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir.pipeline import default_s_tir_pipeline, finalize_device_passes

from worker.compiler.schedules.gpu.chips import Gpu

_ASYNC = {"tirx.use_async_copy": True}
_LAUNCH = "tirx.call_ffi_kernel"
_DIMENSIONS = ("x", "y", "z")


@dataclass(frozen=True)
class Launch:
    """One kernel started by a call.

    Attributes:
        kernel: the name in the source.
        grid: blocks in each dimension.
        block: threads in each dimension.
        shared_bytes: dynamic shared memory of a block.
        arguments: for each argument of the kernel, the index of the function's parameter, or of one of its
            workspaces after them.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class GpuFunction:
    """What a call of a function does: its launches, in order, on memory of its parameters and workspaces.

    Attributes:
        launches: the launches.
        workspaces: bytes of each buffer that only these launches use.
    """

    launches: tuple[Launch, ...]
    workspaces: tuple[int, ...] = ()


@dataclass(frozen=True)
class GpuCode:
    """Kernels as CUDA, and the functions that launch them."""

    source: str
    functions: Mapping[str, GpuFunction]
