"""The values of a module's constants as comments of TVMScript."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

MAX_ELEMENTS = 256
"""Larger constants show only their minimum, maximum and mean."""

_NAME = 'metadata["ir.GenericConst"][{}]'
_FUNCTION = re.compile(r"^    def (\w+)\(", re.MULTILINE)
_INDEX = re.compile(r'metadata\["ir\.GenericConst"\]\[(\d+)\]')

Values = Mapping[Any, str]
"""What is known about constants."""


def constant_values(module: tvm.IRModule, script: str, known: Values) -> dict[Any, str]:
    """The values of the constants that a script names by number, in the order of the numbers.

    Args:
        module: the module.
        script: the module's script, which numbers constants as it comes to them.
        known: the result for the module before, whose values need not be read again.
    """
    found: dict[Any, str] = {}
    functions = {str(name.name_hint): function for name, function in module.functions.items()}
    for name in _FUNCTION.findall(script):
        if isinstance(functions.get(name), relax.Function):
            for constant in _constants(functions[name]):
                if constant not in found:
                    found[constant] = known.get(constant) or describe(constant.value)
    return found


def constant_lines(script: str, values: Values) -> list[str]:
    """The comments at the end of a script: a line for each constant that it names."""
    numbers = sorted({int(number) for number in _INDEX.findall(script)})
    if numbers != list(range(len(values))):
        return (
            ["# The values of the constants are not shown: they cannot be told apart.\n"] if numbers else []
        )
    return [f"# {_NAME.format(number)}: {text}\n" for number, text in enumerate(values.values())]


def _constants(function: relax.Function) -> list[GenericConst]:
    """The constants that a script names by number, in its order: it writes scalars where they are used."""
    found: list[GenericConst] = []

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, GenericConst) and len(getattr(expression.value, "shape", ())) > 0:
            found.append(expression)

    relax.analysis.post_order_visit(function, visit)
    return found


def describe(tensor: tvm.runtime.Tensor) -> str:
    """A constant's dtype, shape and values."""
    array = tensor.numpy()
    kind = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    if array.size <= MAX_ELEMENTS:
        return f"{kind} = {_elements(array)}"
    numbers = array.astype(np.float64)
    return f"{kind}, min {array.min()!s}, max {array.max()!s}, mean {numbers.mean():.6g}"


def _elements(array: NDArray[Any]) -> str:
    return f"[{', '.join(map(_elements, array))}]" if array.ndim else str(array[()])
