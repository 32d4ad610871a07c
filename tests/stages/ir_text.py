"""Relax and TensorIR as short text: a test writes a program, applies a pass, and compares the result.

A program is the body of ``main``, one binding per line; the last binding is the result. The text that comes
back is TVMScript without types, attributes and blocks. Constants show their shape only: ``const(8, 4)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent, indent
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from stage_samples import TARGET
from tvm import relax
from tvm.ir import GenericConst
from tvm.script import ir as I
from tvm.script import relax as R

from worker.compiler.target import compile_target

Pass = Callable[[tvm.IRModule], tvm.IRModule]

AVX2 = compile_target(TARGET.model_copy(update={"mcpu": "x86-64-v3"}))
"""Vectors of eight float32, on any machine that runs the tests."""

_SCRIPT = """\
@I.ir_module
class Module:
    @R.function
    def main({parameters}):
        {attributes}
        with R.dataflow():
{body}
            R.output({result})
        return {result}
"""


_ATTRIBUTES = (
    r", (?:"
    r'\w*layout="\w+"'
    r"|(?:strides|padding|dilation)=\[[^]]*\]"
    r"|(?:groups|out_dtype|center|scale)=\w+"
    r"|ty_args=.*,\)(?=\))"
    r")"
)


def array(*shape: int) -> NDArray[np.float32]:
    """Distinct numbers."""
    return np.arange(1, 1 + np.prod(shape), dtype="float32").reshape(shape)


def program(parameters: str, body: str, inputs: int | None = None, **constants: Any) -> tvm.IRModule:
    """A module of a ``main``.

    Args:
        parameters: such as ``x: (2, 4), y: (4,) int64``; float32 where no dtype is named.
        body: bindings in TVMScript; the last one is the result.
        inputs: how many parameters are inputs, where the others are weights.
        constants: arrays that the body names.
    """
    bindings = dedent(body).strip()
    script = _SCRIPT.format(
        parameters=", ".join(
            f'{name}: R.Tensor({shape}, "{dtype or "float32"}")'
            for name, shape, dtype in re.findall(r"(\w+): (\([^)]*\))(?: (\w+))?", parameters)
        ),
        attributes="" if inputs is None else f'R.func_attr({{"num_input": {inputs}}})',
        body=indent(bindings, " " * 12),
        result=bindings.rpartition("\n")[2].partition(" = ")[0],
    )
    values = {name: relax.const(value, str(value.dtype)) for name, value in constants.items()}
    return tvm.script.from_source(script, extra_vars={"I": I, "R": R, **values})


def body_of(module: tvm.IRModule, name: str = "main") -> str:
    """The bindings of a function of Relax."""
    text = _shortened(module[name].script(show_meta=False)).replace("cls.", "")
    text = re.sub(r"^( *\w+): R\.\w+(?:\(.*\))? = (?=\S)", r"\1 = ", text, flags=re.MULTILINE)
    text = re.sub(r'out_ty=R\.Tensor\((\(.*?\)), dtype="float32"\)', r"\1", text)
    text = re.sub(r'out_ty=R\.Tensor\((\(.*?\)), dtype="(\w+)"\)', r"\1 \2", text)
    shapes = iter(_shapes_of_arrays(module[name]))
    text = _renamed(text, r"metadata\[.*?\]\[\d+\]", lambda _: f"const{next(shapes)}".replace(",)", ")"))
    text = _renamed(text, r"\blv\d*\b", lambda number: f"lv{number or ''}")
    bindings = re.split(r"^ *(?:def .*|with R\.dataflow\(\):)\n", text, flags=re.MULTILINE)[-1]
    return dedent(re.split(r"^ *(?:R\.output|return)\b", bindings, flags=re.MULTILINE)[0]).strip()


def loops_of(module: tvm.IRModule, name: str) -> str:
    """The loops of a function of TensorIR, without the blocks around its statements."""
    text = _shortened(module[name].script(show_meta=False))
    kept, blocks = [], []
    for line in re.split(r"^def .*\n", text, flags=re.MULTILINE)[1].split("\n"):
        depth = len(line) - len(line.lstrip())
        while blocks and depth <= blocks[-1]:
            blocks.pop()
        if line.strip().startswith("with T.sblock("):
            blocks.append(depth)
        elif " = T.axis." not in line and " = T.sblock_alloc_buffer(" not in line:
            kept.append(line[4 * len(blocks) :])
    return re.sub(r"\bv_(\w+)", r"\1", dedent("\n".join(kept)).strip())


def check(apply: Pass, parameters: str, before: str, after: str, **given: Any) -> tvm.IRModule:
    """Assert what ``main`` becomes, and return the module; ``given`` goes to ``program``.

    The names of variables do not matter.
    """
    with AVX2.llvm:
        module = apply(program(parameters, before, **given))
    assert _numbered(body_of(module)) == _numbered(dedent(after).strip())
    return module


def check_loops(module: tvm.IRModule, name: str, loops: str) -> None:
    """Assert what a function of TensorIR does."""
    assert loops_of(module, name) == dedent(loops).strip()


def _numbered(text: str) -> str:
    names = dict.fromkeys(re.findall(r"^(\w+) = ", text, re.MULTILINE))
    numbers = {name: f"v{number}" for number, name in enumerate(names)}
    return re.sub(r"\w+", lambda word: numbers.get(word[0], word[0]), text)


def _shortened(text: str) -> str:
    kept = (
        line
        for line in text.split("\n")
        if not re.match(r" *(#|T\.reads|T\.writes|T\.func_attr|@|R\.func_attr|cls = )", line)
    )
    text = re.sub(_ATTRIBUTES, "", "\n".join(kept))
    return re.sub(r'T\.(?:int64|float32)\("?([-\w.]+)"?\)', r"\1", text)


def _renamed(text: str, pattern: str, name: Callable[[int], str]) -> str:
    """A text with its matches replaced by names, numbered by first appearance."""
    names: dict[str, str] = {}
    for found in re.findall(pattern, text):
        if found not in names:
            names[found] = name(len(names))
    return re.sub(pattern, lambda one: names[one[0]], text)


def _shapes_of_arrays(function: relax.Function) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, GenericConst) and getattr(expression.value, "shape", ()):
            shapes.append(tuple(expression.value.shape))

    relax.analysis.post_order_visit(function, visit)
    return shapes
