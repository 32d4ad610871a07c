"""Read a function of Relax: bindings, readers, operators and shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm_ffi import structural_equal

from worker.compiler.layout.separate_parameters import parameters_of
from worker.compiler.schedules.nest import bits_of

Shape = tuple[Any, ...]
"""Sizes as expressions; some may be known only at run time."""


@dataclass
class Graph:
    """A function's bindings, their readers, and the arguments that are separate parameters."""

    values: dict[relax.Var, relax.Expr]
    parameters: frozenset[relax.Var] = frozenset()
    readers: dict[relax.Var, list[relax.Var]] = field(default_factory=dict)
    outputs: Counter[relax.Var] = field(default_factory=Counter)

    def lookup(self, expression: relax.Expr) -> relax.Expr:
        """The value of a variable; other expressions, and arguments, are themselves."""
        return resolve(expression, self.values.get)

    def only_reader(self, variable: relax.Var) -> relax.Var | None:
        """The binding that reads a variable; None if there are several or it is a result."""
        readers = self.readers.get(variable, [])
        return readers[0] if len(readers) == 1 and variable not in self.outputs else None

    def are_read_within(self, variables: set[relax.Var], last: relax.Var) -> bool:
        """Whether only ``last`` and the variables themselves read the variables."""
        inside = variables | {last}
        return all(
            variable not in self.outputs and inside.issuperset(self.readers.get(variable, []))
            for variable in variables
        )


def read_graph(function: relax.Function) -> Graph:
    """The graph of a function."""
    graph = Graph(dict(relax.analysis.get_var2val(function)), parameters_of(function))
    for variable, value in graph.values.items():
        for operand in _operands(value):
            graph.readers.setdefault(operand, []).append(variable)
    if isinstance(function.body, relax.SeqExpr) and isinstance(function.body.body, relax.Var):
        graph.outputs[function.body.body] += 1
    return graph


def resolve(expression: relax.Expr, lookup: Callable[[relax.Var], relax.Expr | None]) -> relax.Expr:
    """Follow a variable to its value; other expressions, and arguments, are themselves.

    Args:
        expression: the variable, which may be bound to another one.
        lookup: the value that a variable is bound to; None for an argument.
    """
    while isinstance(expression, relax.Var):
        bound = lookup(expression)
        if bound is None:
            return expression
        expression = bound
    return expression


def count_reads(function: relax.Function) -> Counter[relax.Var]:
    """How often each variable is read: twice by a call that takes it twice, once as the result."""
    counts: Counter[relax.Var] = Counter()

    def visit(expression: relax.Expr) -> None:
        match expression:
            case relax.Call():
                operands = list(expression.args)
            case relax.Tuple():
                operands = list(expression.fields)
            case relax.TupleGetItem():
                operands = [expression.tuple_value]
            case relax.SeqExpr():
                operands = [expression.body]
            case _:
                return
        counts.update(operand for operand in operands if isinstance(operand, relax.Var))

    relax.analysis.post_order_visit(function, visit)
    return counts


def _operands(value: relax.Expr) -> list[relax.Var]:
    found: list[relax.Var] = []

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, relax.Var):
            found.append(expression)

    relax.analysis.post_order_visit(value, visit)
    return found


def shape_of(operand: relax.Expr) -> Shape | None:
    """The sizes of a tensor; None if even their number is unknown."""
    kind = operand.ty
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    return tuple(kind.shape)


def static_shape(operand: relax.Expr) -> tuple[int, ...] | None:
    """The sizes of a tensor; None if one is dynamic."""
    sizes = shape_of(operand)
    return tuple(map(int, sizes)) if sizes is not None and are_known(sizes) else None


def element_bytes(tensor: relax.Expr) -> int:
    """The size of one element of a tensor."""
    return -(-bits_of(tensor.ty.dtype) // 8)


def bytes_of(tensor: relax.Expr) -> int:
    """The size of a tensor of known sizes."""
    return prod(map(int, tensor.ty.shape)) * element_bytes(tensor)


def are_known(sizes: Sequence[Any]) -> bool:
    """Whether no size is dynamic."""
    return all(isinstance(size, int | tirx.IntImm) for size in sizes)


def is_one(size: Any) -> bool:
    """Whether a size is 1, and broadcasts; a dynamic size does not."""
    return are_known([size]) and int(size) == 1


def same_shape(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether sizes are the same expressions."""
    return len(one) == len(other) and all(map(structural_equal, one, other))


def operator_of(expression: relax.Expr) -> str:
    """The operator that an expression calls, without ``relax.``; empty for other expressions."""
    return str(expression.op.name).removeprefix("relax.") if _is_operator_call(expression) else ""


def _is_operator_call(expression: relax.Expr) -> bool:
    return (
        isinstance(expression, relax.Call)
        and hasattr(expression.op, "name")
        and not isinstance(expression.op, relax.Var)
    )
