"""Branches and loops on values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from program_runs import run_program
from stage_samples import Function, capture_module, compile_and_verify, optimized
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.nn import Linear

from worker.compiler.frontend.outputs import flatten_outputs
from worker.compiler.values import StageContext

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def branch(parts: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, parts.one, lambda x: parts.other(x).relu(), (x,))


def nested(_: Any, x: torch.Tensor) -> torch.Tensor:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.max() > 1, lambda x: x * 2, lambda x: x * 3, (x,))

    return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,))


def newton(_: Any, x: torch.Tensor) -> torch.Tensor:
    start = (x.abs() + 1,)
    return torch.while_loop(lambda y: (y * y - 2).abs().sum() > 1e-4, lambda y: ((y + 2 / y) * 0.5,), start)[
        0
    ]


def steps(count: int) -> Callable[[Any, torch.Tensor], Any]:
    def body(parts: Any, x: torch.Tensor) -> Any:
        def step(number: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return number + 1, torch.tanh(parts.one(x))

        return torch.while_loop(lambda number, x: number < count, step, (torch.tensor(0), x))

    return body


def running(_: Any, rows: torch.Tensor) -> Any:
    return scan(lambda total, row: (total * 0.5 + row, (total + row).sin()), torch.zeros(4), rows)


def learned(parts: Any, rows: torch.Tensor) -> Any:
    return scan(lambda state, row: (torch.tanh(parts.one(row) + state), state.sin()), torch.zeros(4), rows)


def each(_: Any, rows: torch.Tensor) -> torch.Tensor:
    return torch_map(lambda row, scale: row.sin() * scale, rows, torch.tensor(3.0))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "body",
    [branch, nested, newton, steps(0), steps(1), steps(5), steps(700), running, each],
    ids=["cond", "nested cond", "while_loop", "no step", "one step", "steps", "many steps", "scan", "map"],
)
def test_control_flow_computes_what_torch_computes(body: Callable[..., Any], context: StageContext) -> None:
    captured = capture_module(Function(body, one=Linear(4, 4), other=Linear(4, 4)), X)
    compile_and_verify(captured, context)


def test_a_loop_has_the_same_functions_for_any_number_of_steps(context: StageContext) -> None:
    def functions(count: int) -> int:
        captured = capture_module(Function(steps(count), one=Linear(4, 4)), X)
        return len(optimized(captured, context).module.functions)

    assert functions(3) == functions(500)


def sizes(length: int) -> torch.Tensor:
    return torch.randn(length, 4, generator=torch.Generator().manual_seed(length))


@pytest.mark.sampled
@pytest.mark.parametrize("body", [running, each, learned], ids=["scan", "map", "scan with weights"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["many steps", "any number of steps"])
def test_a_scan_of_many_rows_is_a_loop(body: Callable[..., Any], dynamic: bool) -> None:
    module = Function(body, one=Linear(4, 4)).eval()
    rows = torch.export.Dim("rows", min=1, max=1000)
    shapes = ({0: rows},) if dynamic else None
    calls = [(sizes(length),) for length in ((300, 1, 2, 70) if dynamic else (300,))]
    with torch.no_grad():
        program = torch.export.export(module, calls[0], dynamic_shapes=shapes)
        expected = [flatten_outputs(module(*call)) for call in calls]
    for found, wanted in zip(run_program(program, *calls), expected, strict=True):
        for array, tensor in zip(found, wanted, strict=True):
            np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-4, atol=1e-5)
