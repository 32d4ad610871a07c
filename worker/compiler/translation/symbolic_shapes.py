"""Converts torch's symbolic shapes to TensorIR expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.sym import Analyzer

from worker.compiler.schedules import nest

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
        self._of_data: set[str] = set()

    def within(self, renamed: Mapping[tirx.Var, tirx.Var]) -> SymbolicShapes:
        """The symbols inside a function, which has variables of its own."""
        found = SymbolicShapes(())
        found._of_data = set(self._of_data)
        for name, size in self._variables.items():
            if isinstance(size, tirx.Var):
                if size in renamed:
                    found._variables[name] = renamed[size]
            else:
                found._variables[name] = substituted(size, renamed)
        return found

    def shape_of(self, sizes: Any) -> list[Any] | None:
        """A torch shape in TensorIR; None if a size cannot be expressed."""
        found = [size if isinstance(size, int) else self._size(size.node.expr) for size in sizes]
        return None if any(size is None for size in found) else found

    def learn(self, sizes: Iterable[Any], found: Iterable[Any], define: Callable[[Any], tirx.Var]) -> None:
        """Take the sizes of a translation as those of torch that are new, because they depend on data.

        Each gets a variable, since TVM does not see that two forms of one size are equal.

        Args:
            sizes: torch's sizes.
            found: the translation's sizes, in TensorIR.
            define: gives an expression a variable.
        """
        for size, expression in zip(sizes, found, strict=False):
            known = None if isinstance(size, int) else size.node.expr
            if known is None or str(known) in self._variables or not self._depends_on_data(known):
                continue
            self._of_data |= {str(symbol) for symbol in known.free_symbols}
            is_plain = isinstance(expression, tirx.Var | tirx.IntImm)
            self._variables[str(known)] = expression if is_plain else define(expression)

    def solve(self, expression: Any, size: tirx.Var, define: Callable[..., tirx.Var]) -> None:
        """Define the symbol in an expression ``a * symbol + b`` by the size that it is.

        Args:
            expression: an input's size, in a symbol of torch's.
            size: the size.
            define: gives the number from the size, the factor, the offset, and the number if it is known.
        """
        (symbol,) = variables_in([expression])
        found = self._variables[symbol.name]
        start, after = (
            int(Analyzer().simplify(nest.substitute(expression, {symbol: tirx.IntImm("int64", value)})))
            for value in (0, 1)
        )
        known = None if found.same_as(symbol) else found
        self._variables[symbol.name] = define(size, after - start, start, known)

    def _depends_on_data(self, expression: Any) -> bool:
        names = {str(symbol) for symbol in expression.free_symbols}
        return bool(expression.is_Symbol or names & self._of_data)

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
        if expression.is_Symbol or str(expression) in self._variables:
            return self._variables.get(str(expression))
        join = _OPERATORS.get(type(expression).__name__)
        parts = [self._size(part) for part in _constants_last(expression)]
        if join is None or not parts or any(part is None for part in parts):
            return None
        return reduce(join, parts)


def _constants_last(expression: Any) -> list[Any]:
    """The parts of an expression, in the order that TVM gives sums and products when it simplifies them.

    Passes that match shapes do not see that ``4 * n`` is ``n * 4``.
    """
    is_commutative = type(expression).__name__ in ("Add", "Mul")
    return sorted(expression.args, key=lambda part: is_commutative and bool(part.is_Integer))


def is_size(value: Any) -> bool:
    """Whether a value is a size: an integer, or an expression of sizes."""
    return isinstance(value, int) or not isinstance(value.ty, relax.TensorType)


def substituted(size: Any, renamed: Mapping[tirx.Var, tirx.Var]) -> Any:
    """A size in other variables."""
    if isinstance(size, int):
        return size
    return renamed.get(size, size) if isinstance(size, tirx.Var) else nest.substitute(size, renamed)


def variables_in(sizes: Iterable[Any]) -> list[tirx.Var]:
    """The variables in sizes, each once."""
    found: dict[tirx.Var, None] = {}

    def note(variable: tirx.Var) -> None:
        found[variable] = None

    for size in sizes:
        if not isinstance(size, int):
            tvm_ffi.structural_walk(size, (tirx.Var, note))
    return list(found)


def _variables(variable: relax.Var) -> list[tirx.Var]:
    return variables_in(getattr(variable.ty, "shape", None) or ())
