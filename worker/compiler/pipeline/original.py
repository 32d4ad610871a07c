"""The process that holds the original model: it loads it, runs it with torch, times it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from worker.candidates.library import Command, Run, Time
from worker.compiler.frontend.load import load_model
from worker.compiler.frontend.outputs import flatten_outputs
from worker.measure.timed import timed
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    import numpy as np


class OriginalModel:
    """The model as its user runs it, in this process, under ``inference_mode``."""

    def __init__(self, path: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._eager = load_model(path).eager
        self._tensors: tuple[torch.Tensor, ...] = ()

    def execute(self, command: Command) -> Any:
        """See ``Executor.execute``.

        Raises:
            TypeError: only a library can do that.
        """
        match command:
            case Run(inputs):
                return self.run(inputs)
            case Time(runs, most_seconds):
                return self.time(runs, most_seconds)
        raise TypeError(f"{type(command).__name__} is for libraries")

    def run(self, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """Run once on copies of ``inputs``; the outputs, nested ones flattened."""
        self._tensors = tuple(map(as_tensor, inputs))
        with torch.inference_mode():
            return tuple(map(as_array, flatten_outputs(self._eager(*self._tensors))))

    def time(self, runs: int, most_seconds: float) -> tuple[float, ...]:
        """See ``timed``."""
        with torch.inference_mode():
            return timed(partial(self._eager, *self._tensors), runs, most_seconds)
