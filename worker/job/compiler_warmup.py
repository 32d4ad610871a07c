"""Work that the zygote does once for all jobs: a first compilation, and the capability of this machine.

The compilation sets up in the zygote what torch, TVM and LLVM set up on first use, so that forked children
share it. It runs no compiled code: no parallel region may start before a fork.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import tvm
from torch import nn

from bessemer.contract.capability import Capability
from bessemer.contract.target import GPU_ARCHITECTURES, PRESETS
from bessemer.contract.triple import architecture_of
from worker.compiler.codegen.executable import compile_module
from worker.compiler.cuda_parts import missing_cuda_parts
from worker.compiler.kernels.functions import function_book
from worker.compiler.kernels.registry import kernel_book
from worker.compiler.pipeline.optimize import default_phases
from worker.compiler.platforms import foreign_platforms
from worker.compiler.schedules.processors import machine_of
from worker.compiler.spaces.registry import space_book
from worker.compiler.target import (
    dependents,
    host_instruction_sets,
    host_mcpu,
    host_triple,
    known_architectures,
    processors,
)
from worker.compiler.translation.decompositions import decomposed
from worker.compiler.translation.importer import Importer
from worker.compiler.tuning.strategies import strategy_book
from worker.measure.gpus import gpus_here


class _SmallModel(nn.Module):
    """One layer of each common kind."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.linear = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.norm(self.convolution(x))).flatten(1))


def warm_up_compiler() -> None:
    """Export, translate, optimize and compile a tiny model in memory, and load the installed extensions."""
    space_book()
    kernel_book()
    function_book()
    strategy_book()
    program = torch.export.export(_SmallModel().eval(), (torch.zeros(1, 1, 4, 4),))
    program = decomposed(program)
    module = Importer().from_exported_program(program, False, False, False, None)
    target = tvm.target.Target({"kind": "llvm", "mcpu": host_mcpu(), "num-cores": 1})
    with target, tvm.transform.PassContext(opt_level=3):
        for phase in default_phases(machine_of(target)):
            module = tvm.transform.Sequential(phase.passes)(module)
        compile_module(module, target)


def nearest_preset(mcpu: str, present: frozenset[str], needed: Mapping[str, frozenset[str]]) -> str:
    """The preset of a processor, or else the one that it can run with the most instruction sets.

    Args:
        mcpu: LLVM's name of the processor.
        present: its instruction sets.
        needed: the instruction sets of each processor of its architecture.
    """
    by_processor = {one.mcpu: one.name for one in PRESETS if one.mcpu is not None and not one.gpus}
    runnable = [name for name in by_processor if name in needed and needed[name] <= present]
    nearest = max(runnable, key=lambda name: (name == mcpu, len(needed[name])), default=None)
    return "" if nearest is None else by_processor[nearest]


def capability() -> Capability:
    """What this machine can and cannot run: a worker gets only jobs that it can measure."""
    triple = host_triple()
    present = host_instruction_sets(triple)
    needed = processors(triple)
    architecture = architecture_of(triple)
    lacking = frozenset().union(*needed.values()) - present
    return Capability(
        architecture=architecture,
        preset=nearest_preset(host_mcpu(), present, needed),
        programs=foreign_platforms(),
        foreign=tuple(sorted(known_architectures() - {architecture})),
        processors={name: tuple(sorted(sets - present)) for name, sets in needed.items() if sets - present},
        lacking=tuple(sorted(lacking)),
        dependents={
            name: tuple(sorted(sets & lacking)) for name, sets in dependents(triple).items() if sets & lacking
        },
        gpu_architectures=() if missing_cuda_parts() else GPU_ARCHITECTURES,
        gpus=gpus_here(),
    )
