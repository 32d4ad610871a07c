"""Rewrites of attention: masks of windows, joint projections, and one function for each attention.

    window_masks      reshape(add(reshape(s, [B, W, H, T, S]), mask), [B * W, H, T, S])   →   add(s, mask)

    projections                                          attention
    q = add(matmul(x, WQ), BQ)                           s = matmul(q, k)
    k = add(matmul(x, WK), BK)                           w = nn.softmax(s, axis=-1)
    v = add(matmul(x, WV), BV)                           o = matmul(w, v)
        ↓                                                    ↓
    lv = add(matmul(x, [WQ WK WV]), [BQ BK BV])          o = call_tir(attention, (q, k, v))
    q, k, v = split(lv, [...], axis=-1)

Swin adds the mask of each of ``W`` windows to scores whose batch and windows it takes apart and joins again.
``window_masks`` joins the mask's dimensions instead, so that attention sees one addition.

Attention reads its part of a joint result in place, so nothing is copied. ``projections`` takes linear layers
of one tensor with constant weights, read by nothing but the views in front of attention; others keep their
own kernels, which apply bias and activation as they write. ``layout.attention`` recognizes and fuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.attention.fuse_attention import fuse_attention
from worker.compiler.layout.attention.match_attention import find_attentions
from worker.compiler.layout.constants import Array, constant_of, numpy_of
from worker.compiler.layout.relax_graph import Graph, operator_of, read_graph, static_shape
from worker.compiler.layout.views import read_through
from worker.compiler.rewrites.grouping import is_primitive
from worker.compiler.rewrites.rewrite import GraphRewrite, Match, Rewrite, commuted

_SCORES, _MASK = wildcard(), wildcard()
_APART = is_op("relax.reshape")(_SCORES, wildcard())
_JOINED = is_op("relax.reshape")(commuted("relax.add", _APART, _MASK), wildcard())


def _add_joined(match: Match) -> relax.Expr | None:
    scores, apart, mask = (static_shape(match[one]) for one in (_SCORES, _APART, _MASK))
    if scores is None or apart is None or mask is None or scores != static_shape(match.root):
        return None
    groups = grouped_dimensions(apart, scores)
    if groups is None or len(mask) > len(apart):
        return None
    mask = (1,) * (len(apart) - len(mask)) + mask
    partial = [group for group in groups if mask[group] not in (apart[group], (1,) * len(apart[group]))]
    joined, values = [prod(mask[group]) for group in groups], match.array(_MASK)
    if not partial:
        return relax.op.add(match[_SCORES], relax.op.reshape(match[_MASK], joined))
    if values is None:
        return None
    whole = list(mask)
    for group in partial:
        whole[group] = apart[group]
    spread = np.broadcast_to(values.reshape(mask), whole)
    return relax.op.add(
        match[_SCORES], constant_of(spread.reshape([prod(whole[group]) for group in groups]).copy())
    )


def grouped_dimensions(apart: tuple[int, ...], joined: tuple[int, ...]) -> list[slice] | None:
    """The adjacent dimensions of ``apart`` that each one of ``joined`` joins; None if one is split."""
    groups: list[slice] = []
    start = 0
    for size in joined:
        end = start
        while prod(apart[start:end]) < size and end < len(apart):
            end += 1
        if prod(apart[start:end]) != size:
            return None
        groups.append(slice(start, end))
        start = end
    return groups if prod(apart[start:]) == 1 else None


@dataclass(frozen=True)
class Layer:
    """A linear layer with constant weights ``[depth, columns]`` and, maybe, a bias ``[columns]``."""

    data: relax.Var
    result: relax.Var
    weights: Array
    bias: Array | None


def _combine(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[relax.Var, ...]]:
    combined: list[relax.Var] = []
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function) and not is_primitive(function):
            groups = find_projections(read_graph(function))
            if groups:
                combiner = _Combiner(module, groups)
                rewritten = relax.analysis.remove_all_unused(combiner.visit_expr(function))
                combiner.builder_.update_func(variable, rewritten)
                module = combiner.builder_.get()
                combined += [group[0].result for group in groups]
    return module, tuple(combined)


def find_projections(graph: Graph) -> list[tuple[Layer, ...]]:
    """For each attention, its layers of queries, keys and values, if they read the same tensor."""
    groups = []
    for match in find_attentions(graph):
        operands = (match.query, match.key, match.value)
        bases = [read_through(operand, graph.lookup)[0] for operand in operands]
        layers = [_layer(graph, base) for base in dict.fromkeys(bases)]
        group = tuple(layer for layer in layers if layer is not None)
        if len(group) == len(layers) > 1 and _fit(group):
            groups.append(group)
    return groups


def _fit(group: tuple[Layer, ...]) -> bool:
    first = group[0]
    return all(
        layer.data.same_as(first.data)
        and layer.weights.dtype == first.weights.dtype
        and (layer.bias is None) == (first.bias is None)
        for layer in group
    )


def _layer(graph: Graph, result: relax.Expr) -> Layer | None:
    """The linear layer that computes a tensor; None if there is none, or if several readers share it."""
    product, bias, inner = graph.lookup(result), None, result
    if operator_of(product) == "add":
        inner, bias = product.args[0], numpy_of(graph.lookup(product.args[1]))
        product = graph.lookup(inner)
        if bias is None or len(graph.readers.get(inner, [])) != 1:
            return None
    if operator_of(product) != "matmul" or not isinstance(result, relax.Var):
        return None
    data, weights = product.args[0], numpy_of(graph.lookup(product.args[1]))
    if weights is None or weights.ndim != 2 or not isinstance(data, relax.Var):
        return None
    if len(graph.readers.get(result, [])) != 1 or result in graph.outputs:
        return None
    if bias is not None and bias.shape != (weights.shape[1],):
        return None
    return Layer(data, result, weights, bias)


@mutator
class _Combiner(PyExprMutator):
    """Binds each layer's result to its part of the joint result, computed before the first of them."""

    def __init__(self, module: tvm.IRModule, groups: list[tuple[Layer, ...]]) -> None:
        super().__init__(module)
        self._places = {layer.result: (group, index) for group in groups for index, layer in enumerate(group)}
        self._parts: dict[relax.Var, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var not in self._places:
            super().visit_var_binding_(binding)
            return
        group, index = self._places[binding.var]
        if group[0].result not in self._parts:
            self._parts[group[0].result] = self.builder_.emit(self._joint(group))
        part = relax.TupleGetItem(self._parts[group[0].result], index)
        super().visit_var_binding_(relax.VarBinding(binding.var, part))

    def _joint(self, group: tuple[Layer, ...]) -> relax.Expr:
        weights = np.concatenate([layer.weights for layer in group], axis=1)
        joint = relax.op.matmul(self.visit_expr(group[0].data), constant_of(weights))
        biases = [layer.bias for layer in group if layer.bias is not None]
        if biases:
            joint = relax.op.add(self.builder_.emit(joint), constant_of(np.concatenate(biases)))
        ends = list(accumulate(layer.weights.shape[1] for layer in group))
        return relax.op.split(self.builder_.emit(joint), ends[:-1], axis=-1)


def _fuse(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[relax.Var, ...]]:
    fused = fuse_attention(module)
    known = {variable.name_hint for variable in module.get_global_vars()}
    fired = [
        variable
        for function in fused.functions.values()
        if isinstance(function, relax.Function)
        for variable, value in relax.analysis.get_var2val(function).items()
        if _called(value) not in {"", *known}
    ]
    return fused, tuple(fired)


def _called(value: relax.Expr) -> str:
    """The function of TensorIR that an expression calls; empty for other expressions."""
    if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
        return ""
    return str(value.args[0].name_hint)


REWRITES = (
    Rewrite(
        name="window_masks",
        summary="the masks of windowed attention are added to the scores without reshaping them",
        pattern=_JOINED,
        rewriter=_add_joined,
        is_default=True,
    ),
    GraphRewrite(
        name="projections",
        summary="the linear layers of queries, keys and values become one if they read the same tensor",
        apply=_combine,
    ),
    GraphRewrite(
        name="attention",
        summary="two products with a softmax between them become one function without a matrix of all scores",
        apply=_fuse,
        is_default=True,
    ),
)
