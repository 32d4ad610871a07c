"""Recognize attention: two products, and a softmax along the keys between them.

    s = matmul(query, key)           [..., T, D] times [..., D, S]
    s = f(s)                         any chain of add, multiply, divide, tanh, where, ...
    w = nn.softmax(s, axis=-1)
    w = where(no key is seen, 0, w)  optional: torch writes this for masked rows
    o = matmul(w, value)             [..., T, S] times [..., S, E]

Operands of half precision may be multiplied in float32: then ``s`` and the softmax are float32, ``w`` is
rounded before the second product, and ``o`` after it. A processor computes all of it in float32, and rounds
``o``, and scores to float16 where the model does.

The matcher walks back from each product. It gives up if anything outside the pattern reads ``s`` or ``w``,
which the fused function does not store, or if keys or values are weights: those are linear layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from worker.compiler.layout.images import FLOATS, HALVES
from worker.compiler.layout.relax_graph import Graph, Shape, are_known, operator_of, same_shape, shape_of
from worker.compiler.layout.views import Lookup, read_through, scalar_of
from worker.compiler.schedules.gpu.chips import current_gpu
from worker.compiler.schedules.nest import is_nan

Apply = Callable[[Any, Any], Any]

_GPU_DTYPES = frozenset({*HALVES, "float32"})
_MIN_RANK = 2

_NO_KEY = (
    ("equal", "max"),
    ("logical_not", "astype", "max", "astype", "logical_not", "equal"),
)
"""How a graph tests that a query sees no key: operators from the answer back to the scores."""


@dataclass(frozen=True)
class Step:
    """An elementwise step on the scores: ``apply(score, element of the operand)``.

    ``fill`` replaces the score where a boolean operand is false, or where it is true if ``inverted``. A step
    that ``rounds`` changes the dtype alone.
    """

    apply: Apply
    operand: relax.Expr | None = None
    adds: bool = False
    fill: float | None = None
    inverted: bool = False
    rounds: bool = False


@dataclass(frozen=True)
class Match:
    """Attention on a graph.

    Attributes:
        result: the variable of the second product, rounded.
        scores: the dtype of the scores.
        query: ``[..., T, D]``.
        key: ``[..., D, S]``.
        value: ``[..., S, E]``.
        steps: the steps between the first product and the softmax.
        safe: whether a query that sees no key gives zeros.
    """

    result: relax.Var
    query: relax.Expr
    key: relax.Expr
    value: relax.Expr
    steps: tuple[Step, ...]
    safe: bool
    scores: str


def find_attentions(graph: Graph) -> Iterator[Match]:
    """Every attention of a graph."""
    for variable, value in graph.values.items():
        if operator_of(value) == "matmul":
            match = _Matcher(graph, variable, value).match()
            if match is not None:
                yield match


class _Matcher:
    """Walks back from a product and remembers the variables that it passes."""

    def __init__(self, graph: Graph, variable: relax.Var, product: relax.Call) -> None:
        self._graph = graph
        self._variable, self._product = variable, product
        self._passed: set[relax.Var] = set()

    def match(self) -> Match | None:
        """The attention that ends with the product; None if there is none."""
        weights, value = self._product.args
        result = self._rounded()
        if result is None:
            return None
        softmax, safe = self._softmax(self._unrounded(weights))
        if softmax is None or not _is_plain(self._product) or not _is_along_last(softmax):
            return None
        if not are_known([value.ty.shape[-1]]):
            return None
        found = self._scores(softmax.args[0], shape_of(softmax))
        if found is None or not self._graph.are_read_within(self._passed, self._variable):
            return None
        scores, steps = found
        query, key = scores.args
        if _is_weight(key, self._graph) or _is_weight(value, self._graph):
            return None
        if str(query.ty.dtype) != str(value.ty.dtype):
            return None
        return Match(result, query, key, value, tuple(steps), safe, str(scores.ty.dtype))

    def _rounded(self) -> relax.Var | None:
        """The result in the operands' dtype; None if it is never rounded to that."""
        dtype = str(self._product.args[1].ty.dtype)
        if str(self._product.ty.dtype) == dtype:
            return self._variable
        reader = self._graph.only_reader(self._variable)
        if reader is None or operator_of(self._graph.values[reader]) != "astype":
            return None
        return reader if str(reader.ty.dtype) == dtype else None

    def _unrounded(self, weights: relax.Expr) -> relax.Expr:
        """The weights before they are rounded to the dtype of the values."""
        if str(self._product.ty.dtype) == str(weights.ty.dtype):
            return weights
        bound = self._bound(weights)
        return bound.args[0] if operator_of(bound) == "astype" else weights

    def _bound(self, expression: relax.Expr) -> relax.Expr:
        """The value of a variable that fusing removes."""
        if isinstance(expression, relax.Var):
            self._passed.add(expression)
        return self._graph.lookup(expression)

    def _softmax(self, weights: relax.Expr) -> tuple[relax.Call | None, bool]:
        """The softmax, and whether a query that sees no key gets zeros."""
        bound = self._bound(weights)
        if operator_of(bound) == "nn.softmax":
            return bound, False
        if operator_of(bound) != "where" or not self._is_zero(bound.args[1]):
            return None, False
        softmax = self._bound(bound.args[2])
        if operator_of(softmax) != "nn.softmax" or not self._asks_for_no_key(bound.args[0], softmax.args[0]):
            return None, False
        return softmax, True

    def _is_zero(self, expression: relax.Expr) -> bool:
        bound = self._graph.lookup(expression)
        return isinstance(bound, GenericConst) and not np.any(bound.value.numpy())

    def _asks_for_no_key(self, condition: relax.Expr, scores: relax.Expr) -> bool:
        names: list[str] = []
        bound, place = self._bound(condition), condition
        while operator_of(bound) in {"equal", "max", "logical_not", "astype"}:
            names.append(operator_of(bound))
            if names[-1] == "equal" and scalar_of(bound.args[1], self._graph.lookup) != -np.inf:
                return False
            if names[-1] == "max" and not _is_along_last_kept(bound):
                return False
            place = bound.args[0]
            if isinstance(place, relax.Var) and place.same_as(scores):
                break
            bound = self._bound(place)
        return tuple(names) in _NO_KEY and place.same_as(scores)

    def _scores(self, expression: relax.Expr, shape: Shape | None) -> tuple[relax.Call, list[Step]] | None:
        """The first product and the steps from it to the expression."""
        own = shape_of(expression)
        if shape is None or own is None or not same_shape(own, shape):
            return None
        passed = set(self._passed)
        bound = self._bound(expression)
        if operator_of(bound) == "matmul":
            return (bound, []) if _is_plain(bound) and _is_depth_known(bound) else None
        for operand, step in _readings(bound, self._graph.lookup):
            found = self._scores(operand, shape)
            if found is not None:
                return found[0], [*found[1], _rounded(step, str(bound.ty.dtype))]
        self._passed = passed
        return None


def _readings(call: relax.Expr, lookup: Lookup) -> Iterator[tuple[relax.Expr, Step]]:
    """The ways to read a call as a step: the operand that is the scores, and the step."""
    name = operator_of(call)
    if name in _BINARY:
        left, right = call.args
        apply = _BINARY[name]
        yield left, Step(apply, right, adds=name == "add")
        yield right, Step(lambda score, other: apply(other, score), left, adds=name == "add")
    elif name == "tanh":
        yield call.args[0], Step(lambda score, _: tirx.tanh(score))
    elif name == "astype" and {str(call.ty.dtype), str(call.args[0].ty.dtype)} <= _GPU_DTYPES:
        dtype = str(call.ty.dtype) if current_gpu() is not None else "float32"
        yield call.args[0], Step(lambda score, _: score.astype(dtype), rounds=True)
    elif name == "where":
        condition, chosen, other = call.args
        for scores, fill, inverted in ((chosen, other, False), (other, chosen, True)):
            number = scalar_of(fill, lookup)
            if number is not None:
                yield scores, Step(_choice(number, inverted), condition, fill=number, inverted=inverted)


def _rounded(step: Step, dtype: str) -> Step:
    """A step whose result a processor rounds to float16, and keeps in float32.

    Otherwise a finite mask of float16, or scores that overflow it, would have another effect than in torch.
    bfloat16 has the range of float32.
    """
    if dtype != "float16" or current_gpu() is not None:
        return step
    return replace(step, apply=lambda *given: step.apply(*given).astype(dtype).astype("float32"))


def _choice(number: float, inverted: bool) -> Apply:
    def apply(score: Any, seen: Any) -> Any:
        fill = tirx.FloatImm(score.ty.dtype, number)
        return tirx.Select(seen, fill, score) if inverted else tirx.Select(seen, score, fill)

    return apply


def _propagating_nan(compare: Apply) -> Apply:
    """The larger or smaller of two numbers; NaN if one is NaN: LLVM returns the second if either is."""

    def apply(one: Any, other: Any) -> Any:
        if isinstance(other, tirx.FloatImm):
            one, other = other, one
        chosen = compare(one, other)
        return chosen if isinstance(one, tirx.FloatImm) else tirx.Select(is_nan(one), one, chosen)

    return apply


_BINARY: dict[str, Apply] = {
    "add": lambda one, other: one + other,
    "divide": lambda one, other: one / other,
    "maximum": _propagating_nan(tirx.Max),
    "minimum": _propagating_nan(tirx.Min),
    "multiply": lambda one, other: one * other,
    "subtract": lambda one, other: one - other,
}


def _is_plain(product: relax.Call) -> bool:
    """Whether operands and result have two dimensions or more, no size 0, and dtypes of the target's."""
    left, right = product.args
    shapes = [shape_of(operand) for operand in (left, right, product)]
    given, made = str(left.ty.dtype), str(product.ty.dtype)
    return (
        all(shape is not None and len(shape) >= _MIN_RANK and not _is_empty(shape) for shape in shapes)
        and given == str(right.ty.dtype)
        and (made == given or (given in HALVES and made == "float32"))
        and given in (FLOATS if current_gpu() is None else _GPU_DTYPES)
    )


def _is_empty(shape: Shape) -> bool:
    return any(are_known([size]) and int(size) == 0 for size in shape)


def _is_depth_known(product: relax.Call) -> bool:
    return are_known([product.args[0].ty.shape[-1]])


def _is_along_last(softmax: relax.Call) -> bool:
    return int(softmax.attrs.axis) in (-1, softmax.ty.ndim - 1)


def _is_along_last_kept(maximum: relax.Call) -> bool:
    axes = maximum.attrs.axis
    rank = int(maximum.ty.ndim)
    return (
        axes is not None
        and [int(axis) % rank for axis in axes] == [rank - 1]
        and bool(maximum.attrs.keepdims)
    )


def _is_weight(operand: relax.Expr, graph: Graph) -> bool:
    """Whether an operand is a constant or a parameter: the product is a linear layer, with packed weights."""
    base = graph.lookup(read_through(operand, graph.lookup)[0])
    return isinstance(base, GenericConst) or base in graph.parameters


def is_masked(values: Any) -> Any:
    """Whether a score of this value, or with this value added, gets no weight beside ordinary scores."""
    return np.asarray(values, np.float64) <= _LEAST


_LEAST = -1e30
