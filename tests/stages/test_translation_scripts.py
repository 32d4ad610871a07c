"""Rules as text: the exported graph before translation, and TVMScript after it."""

import re
from collections.abc import Callable
from textwrap import dedent

import pytest
import torch
from torch import nn
from torch.export import ExportedProgram

from worker.compiler.translation.decompositions import decomposition_table
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
            lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j),
            (torch.zeros(4, 2),),
            """
            view_as_complex = aten.view_as_complex.default(x_0)
            mul = aten.mul.Tensor(view_as_complex, 2j)
            view_as_real = aten.view_as_real.default(mul)
            """,
            """
            mul = R.take(x_0, R.const(0, "int64"), axis=-1, mode="fast")
            mul1 = R.take(x_0, R.const(1, "int64"), axis=-1, mode="fast")
            mul2 = R.multiply(mul, R.const(0.0, "float32"))
            mul3 = R.multiply(mul1, R.const(2.0, "float32"))
            mul4 = R.subtract(mul2, mul3)
            mul5 = R.multiply(mul, R.const(2.0, "float32"))
            mul6 = R.multiply(mul1, R.const(0.0, "float32"))
            mul7 = R.add(mul5, mul6)
            mul8 = R.stack((mul4, mul7), axis=-1)
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
    program = torch.export.export(Calling(function), inputs).run_decompositions(decomposition_table())
    assert graph_text(program) == dedent(graph).strip()
    assert main_text(program) == dedent(script).strip()
