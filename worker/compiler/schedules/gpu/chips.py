"""NVIDIA GPUs as schedules model them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import tvm

KIB = 1024


@dataclass(frozen=True)
class Gpu:
    """A GPU by its architecture.

    Attributes:
        arch: the architecture, such as ``sm_90``.
        multiprocessors: of the architecture's largest common chip; a grid of fewer blocks leaves some idle.
        shared_bytes: the shared memory that one block can have; what exceeds 48 KiB must be dynamic.
        shared_bytes_per_multiprocessor: what the blocks on one multiprocessor share.
        threads_per_multiprocessor: the most threads that can be resident.
        tf32: whether the request lets tensor cores round factors of float32 to 10 bits of mantissa.

    Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    arch: str
    multiprocessors: int
    shared_bytes: int
    shared_bytes_per_multiprocessor: int
    threads_per_multiprocessor: int
    warp: int = 32
    threads_per_block: int = 1024
    registers_per_multiprocessor: int = 64 * KIB
    tf32: bool = False

    @property
    def capability(self) -> int:
        """The compute capability as one number, such as 90."""
        return int(self.arch.removeprefix("sm_"))

    @property
    def has_async_copies(self) -> bool:
        """Whether threads can copy from global to shared memory without registers (``cp.async``)."""
        return self.capability >= 80

    @property
    def has_bfloat16(self) -> bool:
        """Whether tensor cores multiply bfloat16 and tf32."""
        return self.capability >= 80

    @property
    def has_warpgroups(self) -> bool:
        """Whether tensor cores read both factors from shared memory (``wgmma``), which only one can."""
        return self.capability == 90

    @property
    def target(self) -> tvm.target.Target:
        """The GPU as TVM takes it; the host's part of a function is never compiled."""
        return tvm.target.Target(
            {
                "kind": "cuda",
                "arch": self.arch,
                "max_num_threads": self.threads_per_block,
                "max_threads_per_block": self.threads_per_block,
                "thread_warp_size": self.warp,
                "max_shared_memory_per_block": self.shared_bytes,
                "host": {"kind": "llvm"},
            }
        )


_GPUS = {
    gpu.arch: gpu
    for gpu in (
        Gpu("sm_75", 40, 64 * KIB, 64 * KIB, 1024),
        Gpu("sm_80", 108, 163 * KIB, 164 * KIB, 2048),
        Gpu("sm_86", 84, 99 * KIB, 100 * KIB, 1536),
        Gpu("sm_89", 142, 99 * KIB, 100 * KIB, 1536),
        Gpu("sm_90", 132, 227 * KIB, 228 * KIB, 2048),
        Gpu("sm_100", 148, 227 * KIB, 228 * KIB, 2048),
        Gpu("sm_120", 170, 99 * KIB, 100 * KIB, 1536),
    )
}


def gpu_of(arch: str) -> Gpu:
    """The GPU of an architecture.

    Raises:
        KeyError: the architecture is unknown.
    """
    return _GPUS[arch]


_CURRENT: ContextVar[Gpu | None] = ContextVar("gpu", default=None)


def current_gpu() -> Gpu | None:
    """The GPU that a rule writes a function for, beside ``current_machine``; None without one."""
    return _CURRENT.get()


@contextmanager
def writing_for(gpu: Gpu | None) -> Iterator[None]:
    """Rules inside write functions for this GPU."""
    token = _CURRENT.set(gpu)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def gpu_in(target: tvm.target.Target) -> Gpu | None:
    """The GPU of a target as TVM takes it; None for a processor."""
    return gpu_of(str(target.attrs["arch"])) if str(target.kind.name) == "cuda" else None
