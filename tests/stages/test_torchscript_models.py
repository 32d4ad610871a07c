"""Scripted and traced models, from TorchScript to results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from program_runs import run_program
from torch import nn

from benchmarks.architectures.plain_models import ByData, ByNestedData, Encoder, Recurrent
from worker.compiler.frontend.torchscript.convert import convert_script


def agree(script: torch.jit.ScriptModule, *inputs: torch.Tensor) -> bool:
    """Check a library compiled for the first input against torch on all inputs."""
    with torch.no_grad():
        expected = [script(x).numpy() for x in inputs]
        program = convert_script(script, (inputs[0],))
    found = run_program(program, *((x,) for x in inputs))
    return all(
        np.allclose(one, its, rtol=1e-5, atol=1e-5) for (one,), its in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("model", [ByData, ByNestedData])
def test_a_branch_on_the_data_keeps_both_sides(model: type[nn.Module]) -> None:
    script = torch.jit.script(model().eval())
    x = torch.rand(2, 4) + 0.1

    assert agree(script, x, x * 9, -x)


@pytest.mark.parametrize(
    ("model", "shape"),
    [(Encoder(True, "gelu"), (2, 5, 16)), (Recurrent(nn.LSTM), (2, 5, 8))],
    ids=["fused encoder", "both ends of an LSTM"],
)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_traced_model_agrees_with_torch(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    with torch.no_grad():
        script = torch.jit.trace(model.eval(), x, check_trace=False)

    assert agree(script, x)
