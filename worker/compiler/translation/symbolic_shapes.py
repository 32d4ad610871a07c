"""Converts torch's symbolic shapes to TensorIR expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from tvm import relax, tirx
from tvm.sym import Analyzer

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a + b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": tirx.floordiv,
    "CleanDiv": tirx.floordiv,
    "Mod": tirx.floormod,
    "PythonMod": tirx.floormod,
    "Max": tirx.max,
    "Min": tirx.min,
}
"""By the class name of the sympy or torch expression."""


class SymbolicShapes:
    """The symbols of a program, as TensorIR variables."""

    def __init__(self, inputs: Iterable[relax.Var]) -> None:
        self._variables = {str(size.name): size for variable in inputs for size in _variables(variable)}

    def shape_of(self, sizes: Any) -> list[Any] | None:
        """A torch shape in TensorIR; None if a size cannot be expressed."""
        found = [size if isinstance(size, int) else self._size(size.node.expr) for size in sizes]
        return None if any(size is None for size in found) else found

    def learn(self, sizes: Iterable[Any], found: Iterable[Any]) -> None:
        """Take the sizes of a translation as those symbols that are new, which depend on data.

        Args:
            sizes: torch's sizes.
            found: the translation's sizes, in TensorIR.
        """
        for size, expression in zip(sizes, found, strict=False):
            symbol = None if isinstance(size, int) else size.node.expr
            if symbol is not None and symbol.is_Symbol:
                self._variables.setdefault(str(symbol), expression)

    def are_equal(self, shape: Any, expected: list[Any]) -> bool:
        """Whether a Relax shape provably equals torch's."""
        if not isinstance(shape, relax.ShapeExpr) or len(shape.values) != len(expected):
            return False
        analyzer = Analyzer()
        return all(
            analyzer.can_prove_equal(one, other) for one, other in zip(shape.values, expected, strict=True)
        )

    def _size(self, expression: Any) -> Any | None:
        if expression.is_Integer:
            return tirx.IntImm("int64", int(expression))
        if expression.is_Symbol:
            return self._variables.get(str(expression))
        join = _OPERATORS.get(type(expression).__name__)
        parts = [self._size(part) for part in expression.args]
        if join is None or not parts or any(part is None for part in parts):
            return None
        return reduce(join, parts)


def _variables(variable: relax.Var) -> list[Any]:
    shape = getattr(variable.ty, "shape", None)
    return [size for size in shape or () if isinstance(size, tirx.Var)]
