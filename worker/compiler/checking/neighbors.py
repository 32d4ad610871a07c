"""Inputs that differ from a sample's by rounding, and the model's results for them.

A model that thresholds or sorts changes its result at once where a value lies at the threshold, or two values
tie. Torch's own result is then one of several right ones. A library is right if it computes what the model
computes for an input within rounding of the given one: it is backward stable (Higham, Accuracy and Stability
of Numerical Algorithms, section 1.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.values import RelaxProgram
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    from worker.compiler.values import Captured, Sample

TRIES = 8
RELATIVE_CHANGES = (2.0**-22, 2.0**-20)
"""Two and eight units in the last place of float32, alternating."""


def neighbors(captured: Captured, sample: Sample) -> Iterator[Sample]:
    """Yield inputs near a sample's, with the model's results for them.

    Only floating-point inputs of at least 32 bits change. Results have their own sizes.
    """
    if isinstance(captured.program, RelaxProgram):
        return
    model = captured.program.module(check_guards=False)
    generator = np.random.default_rng(captured.upload.request.verify.seed)
    for number in range(TRIES):
        change = RELATIVE_CHANGES[number % len(RELATIVE_CHANGES)]
        inputs = tuple(_moved(array, change, generator) for array in sample.inputs)
        with torch.inference_mode():
            outputs = flatten_outputs(model(*map(as_tensor, inputs)))
        yield replace(sample, inputs=inputs, references=tuple(map(as_array, outputs)))


def _moved(array: np.ndarray, change: float, generator: np.random.Generator) -> np.ndarray:
    if array.dtype not in (np.float32, np.float64):
        return array
    factors = 1 + generator.uniform(-change, change, array.shape)
    return (array * factors).astype(array.dtype)
