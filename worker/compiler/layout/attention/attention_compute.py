"""The function of TensorIR for ``softmax(f(QK))V``, with its operands read through views.

    scores[..., t, s]   = sum over d of query[..., t, d] * key[..., d, s]
    weights[..., t, s]  = f(scores[..., t, s]), and -inf if s > t + causal
    highest[..., t]     = largest weights[..., t, s]
    powers[..., t, s]   = exp(weights[..., t, s] - highest[..., t])
    total[..., t]       = sum over s of powers[..., t, s]
    shares[..., t, s]   = powers[..., t, s] / total[..., t]
    attended            = sum over s of shares[..., t, s] * value[..., s, e], its dimensions in ``order``

``f`` is a chain of elementwise steps. With ``safe``, a query that sees no key gives zeros. If the scores are
float32, operands of half precision are widened before they are multiplied, and a block rounds ``attended``.
These blocks say what is computed; ``worker.compiler.schedules.families.attention`` replaces them by loops
that never store all scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import tvm
from tvm import te, tirx
from tvm.s_tir import renew_defs
from tvm.tirx.analysis import undefined_vars

from worker.compiler.layout.relax_graph import Shape, is_one
from worker.compiler.layout.views import View, element_at
from worker.compiler.schedules.annotations import ATTENTION, CAUSAL, OPAQUE, PATTERN, SAFE

Tensor = Any
Expression = Any


@dataclass(frozen=True)
class Operand:
    """A parameter of the function and the views through which the function reads it, in order."""

    parameter: int
    views: tuple[View, ...]


@dataclass(frozen=True)
class Edit:
    """A step on the scores; ``apply`` takes a score and the operand's element, or None without an operand."""

    apply: Callable[[Expression, Expression], Expression]
    operand: Operand | None = None


@dataclass(frozen=True)
class Attention:
    """One attention, ``softmax(f(QK))V``.

    Attributes:
        query: ``[..., T, D]``.
        key: ``[..., D, S]``.
        value: ``[..., S, E]``.
        edits: the steps between the scores and the softmax.
        order: the result's dimensions, as positions in ``[..., T, E]``.
        causal: query ``i`` sees the keys up to ``i + causal``; all keys if None.
        safe: whether a query that sees no key gives zeros.
        scores: the dtype of the scores.
    """

    query: Operand
    key: Operand
    value: Operand
    edits: tuple[Edit, ...]
    order: tuple[int, ...]
    causal: int | None
    safe: bool
    scores: str


def attention_function(
    attention: Attention, shapes: Sequence[tuple[Shape, str]]
) -> tuple[tirx.PrimFunc, tuple[tirx.Var, ...]]:
    """Write the function for parameters of these shapes and dtypes.

    Returns:
        The function, and the dynamic sizes that it takes between its parameters and the result.
    """
    parameters = [te.placeholder(shape, dtype, f"p{index}") for index, (shape, dtype) in enumerate(shapes)]
    result = _attend(attention, parameters)
    sizes = _dynamic_sizes([*parameters, result])
    function = te.create_prim_func([*parameters, *sizes, result]).without_attr("global_symbol")
    function = renew_defs(function.with_attr(PATTERN, OPAQUE).with_attr("tirx.noalias", True))
    return function, sizes


def _dynamic_sizes(tensors: Sequence[Tensor]) -> tuple[tirx.Var, ...]:
    """The variables in the tensors' sizes that no parameter has as a size of its own."""
    sizes = [size for tensor in tensors for size in tensor.shape]
    alone = {size for tensor in tensors[:-1] for size in tensor.shape if isinstance(size, tirx.Var)}
    used = dict.fromkeys(variable for size in sizes for variable in undefined_vars(size, []))
    return tuple(variable for variable in used if variable not in alone)


def _attend(attention: Attention, parameters: list[Tensor]) -> Tensor:
    query, key, value = (
        _viewed(operand, parameters) for operand in (attention.query, attention.key, attention.value)
    )
    scores = _scores(query, key, attention.scores)
    weights = _softmax(_edited(scores, attention, parameters), attention.safe)
    attended = _result(weights, value, attention)
    if attended.dtype == value.dtype:
        return attended
    return te.compute(attended.shape, lambda *at: attended(*at).astype(value.dtype), "rounded")


def _viewed(operand: Operand, parameters: list[Tensor]) -> Tensor:
    tensor = parameters[operand.parameter]
    for view in operand.views:
        tensor = view(tensor)
    return tensor


def _steps(extent: Any, name: str) -> Any:
    return te.reduce_axis((tirx.IntImm("int64", 0), extent), name)


def _scores(query: Tensor, key: Tensor, dtype: str) -> Tensor:
    batch = _broadcast(query.shape[:-2], key.shape[:-2])
    step = _steps(query.shape[-1], "d")

    def score(*place: Any) -> Expression:
        *outer, row, column = place
        left, right = element_at(query, (*outer, row, step)), element_at(key, (*outer, step, column))
        return te.sum(_widened(left, dtype) * _widened(right, dtype), axis=step)

    return te.compute([*batch, query.shape[-2], key.shape[-1]], score, "scores")


def _widened(element: Expression, dtype: str) -> Expression:
    return element if str(element.ty.dtype) == dtype else element.astype(dtype)


def _broadcast(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    longer, shorter = sorted((list(one), list(other)), key=len, reverse=True)
    padded = [tirx.IntImm("int64", 1)] * (len(longer) - len(shorter)) + shorter
    return [a if is_one(b) else b for a, b in zip(longer, padded, strict=True)]


def _edited(scores: Tensor, attention: Attention, parameters: list[Tensor]) -> Tensor:
    operands = [edit.operand and _viewed(edit.operand, parameters) for edit in attention.edits]

    def weight(*place: Any) -> Expression:
        value = scores(*place)
        for edit, operand in zip(attention.edits, operands, strict=True):
            value = edit.apply(value, None if operand is None else element_at(operand, place))
        if attention.causal is None:
            return value
        return tirx.Select(place[-1] <= place[-2] + attention.causal, value, _infinity(scores.dtype))

    return te.compute(scores.shape, weight, "weights")


def _infinity(dtype: str) -> Expression:
    return tirx.FloatImm(dtype, -inf)


def _softmax(weights: Tensor, safe: bool) -> Tensor:
    shape, size = weights.shape, weights.shape[-1]
    column = _steps(size, "j")
    highest = te.compute(shape[:-1], lambda *at: te.max(weights(*at, column), axis=column), "highest")
    least = tvm.tirx.FloatImm(weights.dtype, 0.0)

    def shift(at: tuple[Any, ...]) -> Expression:
        top = highest(*at)
        return tirx.Select(top == _infinity(weights.dtype), least, top) if safe else top

    powers = te.compute(shape, lambda *at: te.exp(weights(*at) - shift(at[:-1])), "powers")
    column = _steps(size, "j")
    total = te.compute(shape[:-1], lambda *at: te.sum(powers(*at, column), axis=column), "total")

    def share(*at: Any) -> Expression:
        part = powers(*at) / total(*at[:-1])
        return tirx.Select(total(*at[:-1]) == least, least, part) if safe else part

    return te.compute(shape, share, "shares")


def _result(weights: Tensor, value: Tensor, attention: Attention) -> Tensor:
    plain = [*weights.shape[:-1], value.shape[-1]]
    step = _steps(weights.shape[-1], "j")

    def element(*place: Any) -> Expression:
        at = [place[attention.order.index(position)] for position in range(len(place))]
        *outer, row, column = at
        factor = _widened(element_at(value, (*outer, step, column)), weights.dtype)
        return te.sum(weights(*outer, row, step) * factor, axis=step)

    attributes: dict[str, Any] = {ATTENTION: list(attention.order), SAFE: int(attention.safe)}
    if attention.causal is not None:
        attributes[CAUSAL] = attention.causal
    return te.compute(
        [plain[position] for position in attention.order], element, "attended", attrs=attributes
    )
