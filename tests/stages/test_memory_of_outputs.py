"""Arrays go into a library and come out of it without copies, and no output is the library's own memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from package_samples import benchmark_result
from stage_samples import capture_module, compile_and_verify, optimized
from torch import nn

from bessemer.bundle import run
from worker.compiler.layout.own_memory import own_memory
from worker.compiler.pipeline.package import package
from worker.compiler.values import Benchmarked, StageContext


class Outputs(nn.Module):
    """Outputs of every kind: computed, constant, an input, and views of each."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant", torch.arange(64.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        doubled = x * 2
        first, second = torch.topk(x, 2)
        constants = self.constant, self.constant.reshape(8, 8)
        return (
            doubled,
            *constants,
            x,
            x.reshape(-1),
            doubled.reshape(-1),
            first,
            second,
            x.sum(1).reshape(2, 2),
        )


RUNNER = Path(__file__).parents[1] / "run_without_copies.py"
OWN = (True, False, False, False, False, False, True, True, True)
X = torch.rand(4, 64)


def test_only_outputs_that_a_call_allocates_are_in_memory_of_their_own(context: StageContext) -> None:
    module = optimized(capture_module(Outputs(), X), context).module
    assert own_memory(module["main"]) == OWN
    assert own_memory(module["main"], kept=4) == (False, *OWN[1:5], *(False,) * 4)


def test_a_library_reads_and_writes_where_its_user_has_the_arrays(context: StageContext) -> None:
    captured = capture_module(Outputs(), X)
    verified = compile_and_verify(captured, context)
    package(Benchmarked(verified, benchmark_result(verified.built.library)), context)
    command = [sys.executable, str(RUNNER), str(context.output)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *copies, refused = ran.stdout.splitlines()
    not_own = OWN.count(False)
    assert copies == [
        f"torch 0 {not_own}",
        f"shared 0 {not_own}",
        f"transposed 1 {not_own}",
        f"misaligned 1 {not_own}",
        f"read-only 1 {not_own}",
    ]
    assert refused.startswith("input 'input_0' cannot be read as an array: ")


def test_complex_arrays_are_not_copied_either() -> None:
    x = torch.rand(4, 64, dtype=torch.complex64)
    spec = run.Spec("x", (4, 64), "complex64")
    tensor = run._lent(spec, run._as_array(spec, x))
    assert (tuple(tensor.shape), str(tensor.dtype), tensor.data_ptr()) == (
        (4, 64, 2),
        "float32",
        x.data_ptr(),
    )
    assert run._shared(tensor, spec).ctypes.data == x.data_ptr()
    assert np.array_equal(run._shared(tensor, spec), x.numpy())
