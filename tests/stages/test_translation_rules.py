"""Each operator, translated, built without schedules and run, gives what torch gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from rule_samples import ARITHMETIC, IMAGES, INDEXING, POINTWISE, REDUCTIONS, Sample
from tvm import relax

from worker.formats.outputs import flatten_outputs
from worker.pipeline.translate import decomposition_table
from worker.translation.importer import Importer

TARGET = {"kind": "llvm", "num-cores": 1}
KINDS = {
    "arithmetic": ARITHMETIC,
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "indexing": INDEXING,
    "images": IMAGES,
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
def test_operators_give_what_torch_gives(kind: str) -> None:
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
    program = torch.export.export(module, inputs, strict=False).run_decompositions(decomposition_table())
    translated = Importer().from_exported_program(program, False, False, False, None)
    executable = tvm.compile(translated, tvm.target.Target(TARGET))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return [output.numpy() for output in machine["main"](*map(as_argument, inputs))]


def as_argument(tensor: torch.Tensor) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(tensor.contiguous().numpy())
