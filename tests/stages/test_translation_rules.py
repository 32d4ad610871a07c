"""Each operator, translated and run without schedules, agrees with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from complex_samples import COMPLEX_NUMBERS, FOURIER
from operator_samples import MATRICES, RESIZING, SEARCHING, SPECIAL, WRITING
from program_runs import run_program
from rule_samples import (
    ARITHMETIC,
    COMPLEX,
    IMAGES,
    INDEXING,
    PAIRS,
    POINTWISE,
    REDUCTIONS,
    Sample,
    floats,
)

from worker.compiler.frontend.outputs import flatten_outputs

KINDS = {
    "arithmetic": ARITHMETIC,
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "indexing": INDEXING,
    "images": IMAGES,
    "complex": COMPLEX,
    "complex numbers": COMPLEX_NUMBERS,
    "fourier": FOURIER,
    "pairs": PAIRS,
    "matrices": MATRICES,
    "special": SPECIAL,
    "searching": SEARCHING,
    "writing": WRITING,
    "resizing": RESIZING,
}


class AllOf(torch.nn.Module):
    """Calls many functions, each on inputs of its own: one program, built once."""

    def __init__(self, samples: tuple[Sample, ...]) -> None:
        super().__init__()
        self.samples = samples

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given, results = iter(inputs), []
        for sample in self.samples:
            results += flatten_outputs(sample.body(*(next(given) for _ in sample.inputs)))
        return tuple(results)


@pytest.mark.parametrize("kind", KINDS)
def test_operators_agree_with_torch(kind: str) -> None:
    samples = KINDS[kind]
    inputs = tuple(tensor for sample in samples for tensor in sample.inputs)
    expected = iter(AllOf(samples)(*inputs))

    found = iter(run(AllOf(samples), inputs))

    wrong = [
        sample.name
        for sample in samples
        for _ in flatten_outputs(sample.body(*sample.inputs))
        if not agree(next(found), next(expected))
    ]
    assert wrong == []


def agree(found: np.ndarray, expected: torch.Tensor) -> bool:
    wanted = expected.numpy()
    same_kind = found.shape == wanted.shape and found.dtype == wanted.dtype
    return same_kind and np.allclose(found, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


def run(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
    return run_program(torch.export.export(module, inputs, strict=False), inputs)[0]


class Spectrum(torch.nn.Module):
    """Complex numbers of a dynamic size, joined, written and transformed."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        doubled = torch.cat([spectrum, spectrum.flip(0)])
        doubled[:, 0] = 1j
        return torch.fft.irfft(doubled * doubled.abs(), n=x.shape[-1])


def test_complex_numbers_may_have_dynamic_sizes() -> None:
    small, large = floats(3, 10), floats(5, 10)
    batch = torch.export.Dim("batch", min=2, max=9)
    program = torch.export.export(Spectrum(), (small,), dynamic_shapes=({0: batch},), strict=False)

    found = run_program(program, (small,), (large,))

    for (output,), given in zip(found, (small, large), strict=True):
        assert agree(output, Spectrum()(given))
