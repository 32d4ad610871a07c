"""Replace each attention by one function of TensorIR.

    q, k, v = split(x, 3, axis=-1)                       out = call_tir(attention, (x,))
    q = permute_dims(reshape(q, ...), (0, 2, 1, 3))
    ...                                             →
    s = add(matmul(q, permute_dims(k, ...)), mask)
    o = matmul(nn.softmax(s, axis=-1), v)
    out = permute_dims(o, (0, 2, 1, 3))

``match_attention`` finds the two products with a softmax between. Views in front of queries, keys, values and
masks (``views``) become part of the function's reads, and transpositions of the result become part of its
writes, so that it takes ``x`` itself. A constant mask that hides the keys after each query, or a triangle
made at run time, becomes the comparison ``key <= query + offset``; a constant mask that hides more keys stays
beside it. A finite mask beside another one stays: where both hide all keys, these get weight. Constant masks
are stored transposed, ``[..., S, T]``, as the schedule reads them. On a processor, ``astype`` widens
arguments of half precision before the function, and rounds its result. ``attention_compute`` writes it.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.attention.attention_compute import Attention, Edit, Operand, attention_function
from worker.compiler.layout.attention.match_attention import Match, Step, find_attentions, is_masked
from worker.compiler.layout.images import HALVES
from worker.compiler.layout.relax_graph import (
    Graph,
    Shape,
    are_known,
    operator_of,
    read_graph,
    shape_of,
    static_shape,
)
from worker.compiler.layout.views import View, read_through, scalar_of
from worker.compiler.schedules.gpu.chips import current_gpu

Array = NDArray[Any]

_MOST_UNREAD = 8
"""A tensor is widened whole if it has at most this many times the elements that an attention reads."""


@tvm.transform.module_pass(opt_level=0, name="FuseAttention")
def fuse_attention(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Replace every attention whose scores nothing else reads by a call of one function."""
    fused = module
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            graph = read_graph(function)
            attentions = {}
            swapped = _SwappedMasks()
            for match in find_attentions(graph):
                last, order = _result_of(graph, match)
                attentions[last] = _Fusion(graph, match, order, swapped)
            if attentions:
                fused = _replace(fused, variable, attentions)
    return fused


def _replace(module: tvm.IRModule, variable: Any, attentions: dict[relax.Var, _Fusion]) -> tvm.IRModule:
    replacer = _Replacer(module, attentions)
    function = replacer.visit_expr(module[variable])
    replacer.builder_.update_func(variable, relax.analysis.remove_all_unused(function))
    return replacer.builder_.get()


def _result_of(graph: Graph, match: Match) -> tuple[relax.Var, tuple[int, ...]]:
    """The variable after the transpositions of the result, and its order of the product's dimensions."""
    last = match.result
    order = tuple(range(last.ty.ndim))
    while True:
        reader = graph.only_reader(last)
        if reader is None or operator_of(graph.values[reader]) != "permute_dims":
            return last, order
        axes = graph.values[reader].attrs.axes
        swapped = [int(axis) for axis in axes] if axes else list(reversed(range(len(order))))
        last, order = reader, tuple(order[axis] for axis in swapped)


class _SwappedMasks:
    """Constant masks with the queries last: attentions with the same mask share one."""

    def __init__(self) -> None:
        self._known: list[tuple[GenericConst, Shape, GenericConst]] = []

    def of(self, mask: GenericConst, values: Array) -> GenericConst:
        """The mask whose values in the wanted shape are given, swapped."""
        for known, shape, swapped in self._known:
            if known.same_as(mask) and shape == values.shape:
                return swapped
        found = np.ascontiguousarray(np.swapaxes(values, -1, -2))
        self._known.append((mask, values.shape, relax.const(found, str(found.dtype))))
        return self._known[-1][-1]


class _Fusion:
    """Builds the function of a match and collects its arguments."""

    def __init__(self, graph: Graph, match: Match, order: tuple[int, ...], swapped: _SwappedMasks) -> None:
        self._graph = graph
        self._swapped = swapped
        self.arguments: list[relax.Expr] = []
        edits, causal = self._edits(match)
        self.attention = Attention(
            query=self._operand(match.query),
            key=self._operand(match.key),
            value=self._operand(match.value),
            edits=edits,
            order=order,
            causal=causal,
            safe=match.safe,
            scores=dtype_inside(match.scores),
        )

    def function(self) -> tuple[tirx.PrimFunc, tuple[tirx.Var, ...]]:
        """The function of TensorIR, and the dynamic sizes that it takes as arguments."""
        kinds = [(shape_of(one) or (), dtype_inside(str(one.ty.dtype))) for one in self.arguments]
        return attention_function(self.attention, kinds)

    def _operand(self, operand: relax.Expr) -> Operand:
        base, views = read_through(operand, self._graph.lookup)
        if _is_widened(base) and _elements(base) > _MOST_UNREAD * _elements(operand):
            return Operand(self._parameter(operand), ())
        return Operand(self._parameter(base), views)

    def _parameter(self, argument: relax.Expr) -> int:
        for index, known in enumerate(self.arguments):
            if known.same_as(argument):
                return index
        self.arguments.append(argument)
        return len(self.arguments) - 1

    def _edits(self, match: Match) -> tuple[tuple[Edit, ...], int | None]:
        edits, causal = [], None
        for index, step in enumerate(match.steps):
            hides = self._hides(match.steps, index)
            if hides and self._is_triangle(step):
                causal = 0 if causal is None else min(causal, 0)
                continue
            seen = self._seen(step, match) if hides else None
            offset = None if seen is None else _causal_offset(seen)
            if seen is None or offset is None:
                edits.append(self._edit(step))
                continue
            causal = offset if causal is None else min(causal, offset)
            if not self._is_only_causal(step, seen, offset):
                edits.append(self._edit(step))
        return tuple(edits), causal

    def _hides(self, steps: tuple[Step, ...], index: int) -> bool:
        """Whether keys that a mask would hide get no weight, whatever the other steps do.

        If a mask is finite, a hidden key gets weight in a row whose other keys another mask hides.
        """
        step, *later = steps[index:]
        if not all(one.adds or one.rounds for one in later):
            return False
        return self._is_infinite(step) or all(map(self._is_ordinary, (*steps[:index], *later)))

    def _is_infinite(self, step: Step) -> bool:
        """Whether a mask hides keys by -inf only."""
        if step.fill is not None:
            return step.fill == -np.inf
        values = self._constant(step.operand)
        return values is not None and bool(np.isneginf(values[is_masked(values)]).all())

    def _is_ordinary(self, step: Step) -> bool:
        """Whether a step is known to hide no key."""
        if step.fill is not None:
            return not is_masked(step.fill)
        values = self._constant(step.operand)
        return step.operand is None or (values is not None and not is_masked(values).any())

    def _is_triangle(self, step: Step) -> bool:
        """Whether a step hides the keys after each query's own with a triangle made at run time."""
        if step.operand is None or step.fill is None or step.inverted or not is_masked(step.fill):
            return False
        names, made = ("astype", "tril", "ones"), self._graph.lookup(step.operand)
        for name in names[:-1]:
            if operator_of(made) != name or (name == "tril" and int(made.args[1]) != 0):
                return False
            made = self._graph.lookup(made.args[0])
        return operator_of(made) == names[-1]

    def _edit(self, step: Step) -> Edit:
        if step.operand is None:
            return Edit(step.apply)
        number = None if step.fill is not None else scalar_of(step.operand, self._graph.lookup)
        if number:  # TVM would simplify a product with 0, which is NaN for infinities
            return Edit(lambda score, _: step.apply(score, tirx.FloatImm(score.ty.dtype, number)))
        return Edit(step.apply, self._mask(step.operand))

    def _mask(self, operand: relax.Expr) -> Operand:
        """A mask as the function reads it: a constant one has the queries last, the order of its readers."""
        values, mask = self._constant(operand), self._under_reshapes(operand)
        if values is None or values.ndim < 2 or values.shape[-2] == 1:
            return self._operand(operand)
        axes = [*range(values.ndim - 2), values.ndim - 1, values.ndim - 2]
        return Operand(self._parameter(self._swapped.of(mask, values)), (_transposed(axes),))

    def _constant(self, operand: relax.Expr | None) -> Array | None:
        """The value of a constant, or of a reshaped one; None for others."""
        shape = None if operand is None else static_shape(operand)
        if operand is None or shape is None:
            return None
        bound = self._under_reshapes(operand)
        return bound.value.numpy().reshape(shape) if isinstance(bound, GenericConst) else None

    def _under_reshapes(self, operand: relax.Expr) -> relax.Expr:
        bound = self._graph.lookup(operand)
        while operator_of(bound) in ("expand_dims", "reshape"):
            bound = self._graph.lookup(bound.args[0])
        return bound

    def _seen(self, step: Step, match: Match) -> Array | None:
        """The keys ``[..., T, S]`` that a query sees by a constant mask; None for other steps."""
        values = self._constant(step.operand)
        if values is None or values.size == 1:
            return None
        if step.fill is not None:
            seen = values != step.inverted if is_masked(step.fill) else None
        else:
            seen = ~is_masked(values) if step.adds else None
        if seen is None:
            return None
        sizes = match.query.ty.shape[-2], match.key.ty.shape[-1]
        if not are_known(sizes):
            return None
        known = tuple(map(int, sizes))
        return np.broadcast_to(seen, np.broadcast_shapes(seen.shape, known))

    def _is_only_causal(self, step: Step, seen: Array, offset: int) -> bool:
        """Whether a mask only hides the keys after ``i + offset``."""
        values = self._constant(step.operand)
        if values is None or not (seen == np.tri(seen.shape[-2], seen.shape[-1], offset, dtype=bool)).all():
            return False
        return step.fill is not None or not np.any(np.where(seen, values, 0))


def dtype_inside(dtype: str) -> str:
    """The dtype in which the function reads, computes and writes what has a dtype outside."""
    return "float32" if dtype in HALVES and current_gpu() is None else dtype


def _is_widened(tensor: relax.Expr) -> bool:
    return dtype_inside(str(tensor.ty.dtype)) != str(tensor.ty.dtype)


def _elements(tensor: relax.Expr) -> int:
    """The elements of a tensor; 1 if a size is dynamic."""
    return prod(static_shape(tensor) or (1,))


def _transposed(axes: list[int]) -> View:
    return lambda tensor: tvm.topi.transpose(tensor, axes)


def _causal_offset(seen: Array) -> int | None:
    """The least offset such that query ``i`` sees no key after ``i + offset``; None if that hides no key."""
    queries, keys = seen.shape[-2:]
    if not seen.any(axis=-1).all():
        return None
    anywhere: Array = seen.reshape(-1, queries, keys).max(axis=0)
    last = keys - 1 - np.argmax(anywhere[:, ::-1], axis=-1)
    offset = int((last - np.arange(queries)).max())
    return offset if offset < keys - 1 else None


@mutator
class _Replacer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, attentions: dict[relax.Var, _Fusion]) -> None:
        super().__init__(module)
        self._attentions = attentions

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        fusion = self._attentions.get(binding.var)
        if fusion is None:
            super().visit_var_binding_(binding)
            return
        function, sizes = fusion.function()
        kernel = self.builder_.add_func(function, "attention")
        arguments = [self._widened(self.visit_expr(argument)) for argument in fusion.arguments]
        kind = binding.var.ty
        made = relax.TensorType(kind.shape, dtype_inside(str(kind.dtype)))
        call = relax.call_tir(kernel, [*arguments, *sizes], out_ty=made)
        if _is_widened(binding.var):
            call = relax.op.astype(self.builder_.emit(call), kind.dtype)
        super().visit_var_binding_(relax.VarBinding(binding.var, call))

    def _widened(self, argument: relax.Expr) -> relax.Expr:
        if not _is_widened(argument):
            return argument
        return self.builder_.emit(relax.op.astype(argument, dtype_inside(str(argument.ty.dtype))))
