"""A first compilation before any job: what torch, TVM and LLVM set up on first use is set up in the zygote.

Forked children share it. Nothing is run: no parallel region may be entered before a fork.
"""

from __future__ import annotations

import torch
import tvm
from torch import nn

from worker.compiler.codegen.executable import compile_module
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.schedules.processors import machine_of
from worker.compiler.spaces.registry import space_book
from worker.compiler.target import host_mcpu
from worker.compiler.translation.decompositions import decomposition_table
from worker.compiler.translation.importer import Importer


class _Rehearsed(nn.Module):
    """One of each kind of layer that most models have."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.linear = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.norm(self.convolution(x))).flatten(1))


def rehearse() -> None:
    """Export, translate, optimize and compile a tiny model in memory; load what packages add."""
    space_book()
    kernel_book()
    program = torch.export.export(_Rehearsed().eval(), (torch.zeros(1, 1, 4, 4),))
    program = program.run_decompositions(decomposition_table())
    module = Importer().from_exported_program(program, False, False, False, None)
    target = tvm.target.Target({"kind": "llvm", "mcpu": host_mcpu(), "num-cores": 1})
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            module = tvm.transform.Sequential(phase.passes)(module)
        compile_module(module, target)
