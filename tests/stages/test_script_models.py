"""Scripted and traced models, from TorchScript to results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax

from benchmarks.architectures.plain_models import ByData, ByNestedData, Encoder, Recurrent
from worker.pipeline.translate import decomposition_table
from worker.torchscript.convert import convert_script
from worker.translation.importer import Importer


def compiled(script: torch.jit.ScriptModule, x: torch.Tensor) -> relax.VirtualMachine:
    with torch.no_grad():
        program = convert_script(script, (x,)).run_decompositions(decomposition_table())
    module = Importer().from_exported_program(program, False, False, False, None)
    return relax.VirtualMachine(tvm.compile(module, tvm.target.Target({"kind": "llvm"})), tvm.cpu())


def agrees(machine: relax.VirtualMachine, script: torch.jit.ScriptModule, x: torch.Tensor) -> bool:
    with torch.no_grad():
        expected = script(x).numpy()
    (found,) = machine["main"](tvm.runtime.tensor(x.numpy()))
    return bool(np.allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize("model", [ByData, ByNestedData])
def test_a_branch_on_the_data_keeps_both_sides(model: type[nn.Module]) -> None:
    script = torch.jit.script(model().eval())
    x = torch.rand(2, 4) + 0.1

    machine = compiled(script, x)

    assert agrees(machine, script, x)
    assert agrees(machine, script, x * 9)
    assert agrees(machine, script, -x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [(Encoder(True, "gelu"), (2, 5, 16)), (Recurrent(nn.LSTM), (2, 5, 8))],
    ids=["fused encoder", "both ends of an LSTM"],
)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_trace_gives_what_torch_gives(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    with torch.no_grad():
        script = torch.jit.trace(model.eval(), x, check_trace=False)

    assert agrees(compiled(script, x), script, x)
