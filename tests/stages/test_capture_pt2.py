"""Inputs and outputs of a `.pt2` other than plain tensors."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from capture_samples import capture_file, exported
from torch import nn

Computed = torch.Tensor | dict[str, object]
BATCH = torch.export.Dim("batch")


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> Computed:
        return x.relu() * 2


class Constants(nn.Module):
    def forward(self, x: torch.Tensor, times: int, extra: torch.Tensor | None = None) -> Computed:
        return {"first": x * times, "none": None, "second": x if extra is None else x + extra}


class Nested(nn.Module):
    def forward(self, named: dict[str, torch.Tensor], listed: list[torch.Tensor]) -> Computed:
        return named["x"] + listed[0] * listed[1]


X = torch.arange(6.0).reshape(2, 3)


CASES: dict[str, Callable[[Path], Path]] = {
    "a constant and an absent tensor": lambda path: exported(Constants(), path, X, 3),
    "a keyword": lambda path: exported(Constants(), path, X, 3, kwargs={"extra": X}),
    "containers": lambda path: exported(Nested(), path, {"x": X}, [X, X + 1]),
    "a dynamic axis": lambda path: exported(Plain(), path, X, dynamic_shapes={"x": {0: BATCH}}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_program_takes_the_tensors_one_by_one_and_agrees(tmp_path: Path, case: str) -> None:
    captured = capture_file(CASES[case](tmp_path / "model"))
    inputs = [torch.from_numpy(array) for array in captured.inputs]
    outputs = captured.program.module()(*inputs)
    flat = outputs if isinstance(outputs, tuple | list) else (outputs,)
    for output, reference in zip(flat, captured.references, strict=True):
        torch.testing.assert_close(output, torch.from_numpy(reference))


def test_a_dynamic_axis_is_compiled_for_the_requested_size(tmp_path: Path) -> None:
    path = CASES["a dynamic axis"](tmp_path / "model")
    assert capture_file(path, "x=7x3").output_specs[0].shape == (7, 3)
