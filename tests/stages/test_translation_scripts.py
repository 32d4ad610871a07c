"""Rules as text: the exported graph before translation, and TVMScript after it."""

import re
from collections.abc import Callable
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from worker.compiler.translation.decompositions import decomposed
from worker.compiler.translation.importer import Importer

X = torch.zeros(2, 3)


class Calling(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        return self.function(*x)


def graph_text(program: ExportedProgram) -> str:
    """The calls of an exported program, one per line."""
    code = re.sub(r";  .* = None", "", program.graph_module.code.replace("torch.ops.", ""))
    return dedent("\n".join(line for line in code.splitlines() if " = " in line))


def main_text(program: ExportedProgram) -> str:
    """The bindings of the translated ``main``, without their types."""
    module = Importer().from_exported_program(program, False, False, False, None)
    lines = module["main"].script(show_meta=False).splitlines()
    first, last = (next(i for i, line in enumerate(lines) if mark in line) for mark in ("dataflow", " gv"))
    return re.sub(r": R\.Tensor\(.*?\) = ", " = ", dedent("\n".join(lines[first + 1 : last])))


@pytest.mark.parametrize(
    ("function", "inputs", "graph", "script"),
    [
        (
            lambda x, y: torch.clamp(x.add(y, alpha=2), 0, 1),
            (X, torch.zeros(3, dtype=torch.int32)),
            """
            add = aten.add.Tensor(x_0, x_1, alpha = 2)
            clamp = aten.clamp.default(add, 0, 1)
            """,
            """
            add = R.astype(x_1, dtype="float32")
            add1 = R.multiply(add, R.const(2.0, "float32"))
            add2 = R.add(x_0, add1)
            clamp = R.maximum(add2, R.const(0.0, "float32"))
            clamp1 = R.minimum(clamp, R.const(1.0, "float32"))
            """,
        ),
        (
            lambda x: torch.view_as_real(torch.view_as_complex(x) * (1 + 2j)),
            (torch.zeros(4, 2),),
            """
            select = aten.select.int(x_0, -1, 0)
            select_1 = aten.select.int(x_0, -1, 1)
            mul = aten.mul.Tensor(select, 1.0)
            mul_1 = aten.mul.Tensor(select_1, 2.0)
            sub = aten.sub.Tensor(mul, mul_1)
            mul_2 = aten.mul.Tensor(select, 2.0)
            mul_3 = aten.mul.Tensor(select_1, 1.0)
            add = aten.add.Tensor(mul_2, mul_3)
            unsqueeze = aten.unsqueeze.default(sub, 1)
            unsqueeze_1 = aten.unsqueeze.default(add, 1)
            cat = aten.cat.default([unsqueeze, unsqueeze_1], -1)
            """,
            """
            select = R.strided_slice(x_0, (1,), (0,), (1,), assume_inbound=False)
            select1 = R.squeeze(select, axis=[1])
            select_1 = R.strided_slice(x_0, (1,), (1,), (2,), assume_inbound=False)
            select_11 = R.squeeze(select_1, axis=[1])
            mul = R.multiply(select1, R.const(1.0, "float32"))
            mul_1 = R.multiply(select_11, R.const(2.0, "float32"))
            sub = R.subtract(mul, mul_1)
            mul_2 = R.multiply(select1, R.const(2.0, "float32"))
            mul_3 = R.multiply(select_11, R.const(1.0, "float32"))
            add = R.add(mul_2, mul_3)
            unsqueeze = R.expand_dims(sub, axis=[1])
            unsqueeze_1 = R.expand_dims(add, axis=[1])
            cat = R.concat((unsqueeze, unsqueeze_1), axis=1)
            """,
        ),
        (
            lambda x, y, z: torch.addmm(z, x, y, beta=1, alpha=0.5),
            (X, torch.zeros(3, 4), torch.zeros(4)),
            """
            addmm = aten.addmm.default(x_2, x_0, x_1, alpha = 0.5)
            """,
            """
            addmm = R.matmul(x_0, x_1, out_dtype="float32")
            addmm1 = R.multiply(addmm, R.const(0.5, "float32"))
            addmm2 = R.add(addmm1, x_2)
            """,
        ),
    ],
    ids=["promotion", "complex numbers", "matrix product"],
)
def test_a_rule_emits_these_operators(
    function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], graph: str, script: str
) -> None:
    program = decomposed(torch.export.export(Calling(function), inputs))
    assert graph_text(program) == dedent(graph).strip()
    assert main_text(program) == dedent(script).strip()
