"""What the machine can reach: its rate of multiplications and of memory, measured in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from worker.candidates.library import Command, Run

_SIDE = 768
_COPY_BYTES = 1 << 26
_SECONDS = 0.15
_READ_AND_WRITTEN = 2


@dataclass
class CeilingProbe:
    """Measures with torch's own product and copy, which come close to what the machine can do."""

    threads: int

    def execute(self, command: Command) -> Any:
        """Measure; see ``Executor.execute``.

        Returns:
            One array: floating-point operations and bytes per second.

        Raises:
            TypeError: the command is not ``Run``.
        """
        if not isinstance(command, Run):
            raise TypeError(f"{type(command).__name__} is not for a probe")
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            return (np.array([_flops_per_second(), _bytes_per_second()]),)


def _flops_per_second() -> float:
    left, right = torch.ones(_SIDE, _SIDE), torch.ones(_SIDE, _SIDE)
    result = torch.empty(_SIDE, _SIDE)
    return 2.0 * _SIDE**3 / _fastest(lambda: torch.mm(left, right, out=result))


def _bytes_per_second() -> float:
    source = torch.ones(_COPY_BYTES // 4)
    target = torch.empty_like(source)
    return _READ_AND_WRITTEN * _COPY_BYTES / _fastest(lambda: target.copy_(source))


def _fastest(call: Callable[[], object]) -> float:
    """The seconds of the fastest call: other work on the machine only slows calls down."""
    best, deadline = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < deadline or best == float("inf"):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
