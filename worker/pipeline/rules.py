"""Translation rules of our own, for operators that TVM's importer gets wrong.

It fixes the results of matrix products and convolutions to float32, whatever the model's dtype, and leaves
running sums of booleans boolean; its look-ups read whatever lies beyond a table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tvm import relax, tirx
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from worker.pipeline.rules_reductions import REDUCTIONS
from worker.pipeline.symbols import Symbols

if TYPE_CHECKING:
    from torch.fx import Node

Rule = Callable[["Importer", "Node"], relax.Var]

_NARROW_FLOATS = frozenset({"float16", "bfloat16"})
_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_TRANSPOSED = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


class Importer(ExportedProgramImporter):
    """TVM's importer with ``RULES`` in place of its own.

    Where sizes are open, each result has the shape that torch gives it: TVM's own reasoning loses some.
    """

    _symbols: Symbols | None = None

    def create_convert_map(self) -> dict[str, Callable[[Node], relax.Var]]:
        """The converters by the operators' names."""
        own = {name: partial(rule, self) for name, rule in RULES.items()}
        return {
            name: partial(self._shaped, converter)
            for name, converter in {**super().create_convert_map(), **own}.items()
        }

    def create_input_vars(self, exported_program: Any) -> Any:
        """The inputs, whose shapes name the symbols."""
        found = super().create_input_vars(exported_program)
        self._symbols = Symbols(found[1].values())
        return found

    def _shaped(self, converter: Callable[[Node], Any], node: Node) -> Any:
        result, value = converter(node), node.meta.get("val")
        if self._symbols is None or not isinstance(result, relax.Var) or not isinstance(value, torch.Tensor):
            return result
        if all(isinstance(size, int) for size in value.shape):
            return result
        shape = self._symbols.shape_of(value.shape)
        if shape is None or self._symbols.are_equal(result.ty.shape, shape):
            return result
        if not isinstance(result.ty.shape, relax.ShapeExpr):
            raise ValueError(f"the shape of {node.name} cannot be told")
        # A cast would say it better, but CanonicalizeBindings crashes on casts of symbols (TVM 0.27).
        return self.emit(relax.op.reshape(result, shape))

    def emit(self, expression: relax.Expr) -> relax.Var:
        """Bind an expression to a new variable."""
        return self.block_builder.emit(expression)


def _dtype(expression: relax.Expr) -> str:
    return str(expression.ty.dtype)


def _wide(dtype: str) -> str:
    """The dtype in which products of ``dtype`` are summed, as torch does."""
    return "float32" if dtype in _NARROW_FLOATS else dtype


def _biased(importer: Importer, product: relax.Expr, bias: relax.Expr | None, dtype: str) -> relax.Var:
    """Add a bias that broadcasts, in the product's dtype, and give the sum the dtype of the operands."""
    result = importer.emit(product)
    wide = _dtype(result)
    if bias is not None:
        result = importer.emit(relax.op.add(result, _cast(importer, bias, wide)))
    return _cast(importer, result, dtype)


def _cast(importer: Importer, expression: relax.Expr, dtype: str) -> relax.Var:
    return expression if _dtype(expression) == dtype else importer.emit(relax.op.astype(expression, dtype))


def _matmul(importer: Importer, node: Node) -> relax.Var:
    left, right = importer.retrieve_args(node)[:2]
    dtype = _dtype(left)
    return _biased(importer, relax.op.matmul(left, right, out_dtype=_wide(dtype)), None, dtype)


def _linear(importer: Importer, node: Node) -> relax.Var:
    data, weight, *rest = importer.retrieve_args(node)
    dtype = _dtype(data)
    product = relax.op.matmul(data, importer.emit(relax.op.permute_dims(weight)), out_dtype=_wide(dtype))
    return _biased(importer, product, rest[0] if rest else None, dtype)


def _addmm(importer: Importer, node: Node) -> relax.Var:
    bias, left, right = importer.retrieve_args(node)[:3]
    dtype = _dtype(left)
    product = importer.emit(relax.op.matmul(left, right, out_dtype=_wide(dtype)))
    product = _times(importer, product, node.kwargs.get("alpha", 1))
    if node.kwargs.get("beta", 1) == 0:
        return _cast(importer, product, dtype)
    return _biased(importer, product, _times(importer, bias, node.kwargs.get("beta", 1)), dtype)


def _attention(importer: Importer, node: Node) -> relax.Var:
    """``aten.scaled_dot_product_attention``; a query that a mask hides all keys from gives zeros."""
    query, key, value, *rest = importer.retrieve_args(node)
    given = dict(zip(("attn_mask", "dropout_p", "is_causal"), rest, strict=False))
    given |= {name: importer.env.get(argument, argument) for name, argument in node.kwargs.items()}
    dtype, mask = _dtype(query), given.get("attn_mask")
    if given.get("enable_gqa"):
        key, value = (_for_heads_of(importer, query, shared) for shared in (key, value))
    axes = [*range(key.ty.ndim - 2), key.ty.ndim - 1, key.ty.ndim - 2]
    turned = importer.emit(relax.op.permute_dims(key, axes))
    scores = importer.emit(relax.op.matmul(query, turned, out_dtype=_wide(dtype)))
    factor = given.get("scale")
    scores = _times(importer, scores, int(query.ty.shape[-1]) ** -0.5 if factor is None else factor)
    if given.get("is_causal"):
        mask = _causal_mask(importer, scores)
    weights = _masked_softmax(importer, scores, mask)
    product = relax.op.matmul(_cast(importer, weights, dtype), value, out_dtype=_wide(dtype))
    return _biased(importer, product, None, dtype)


def _for_heads_of(importer: Importer, query: relax.Expr, shared: relax.Expr) -> relax.Expr:
    """Keys or values ``[..., H / n, S, D]``, each head of them repeated for ``n`` heads of the query."""
    *batch, heads, size, depth = shared.ty.shape
    times = int(query.ty.shape[-3]) // int(heads)
    apart = importer.emit(relax.op.expand_dims(shared, -3))
    repeated = importer.emit(relax.op.broadcast_to(apart, (*batch, heads, times, size, depth)))
    return importer.emit(relax.op.reshape(repeated, (*batch, int(heads) * times, size, depth)))


def _causal_mask(importer: Importer, scores: relax.Expr) -> relax.Expr:
    """``[T, S]``: query ``i`` sees the keys up to ``i``; a constant where the sizes are known."""
    *_, queries, keys = scores.ty.shape
    if all(isinstance(size, tirx.IntImm) for size in (queries, keys)):
        return relax.const(np.tri(int(queries), int(keys), dtype=bool), "bool")
    ones = importer.emit(relax.op.ones((queries, keys), "float32"))
    return _cast(importer, importer.emit(relax.op.tril(ones)), "bool")


def _masked_softmax(importer: Importer, scores: relax.Expr, mask: relax.Expr | None) -> relax.Expr:
    if mask is None:
        return importer.emit(relax.op.nn.softmax(scores))
    dtype = _dtype(scores)
    nothing, zero = relax.const(-inf, dtype), relax.const(0.0, dtype)
    if _dtype(mask) == "bool":
        scores = importer.emit(relax.op.where(mask, scores, nothing))
    else:
        scores = importer.emit(relax.op.add(scores, _cast(importer, mask, dtype)))
    highest = importer.emit(relax.op.max(scores, -1, keepdims=True))
    sees_nothing = importer.emit(relax.op.equal(highest, nothing))
    return importer.emit(relax.op.where(sees_nothing, zero, importer.emit(relax.op.nn.softmax(scores))))


def _times(importer: Importer, expression: relax.Expr, factor: float) -> relax.Expr:
    if factor == 1:
        return expression
    return importer.emit(relax.op.multiply(expression, relax.const(factor, _dtype(expression))))


def _convolution(importer: Importer, node: Node) -> relax.Var:
    """``aten.convolution``: of one to three spatial dimensions, transposed or not."""
    data, weight, bias, strides, padding, dilation, transposed, output_padding, groups = (
        importer.retrieve_args(node)
    )
    rank, dtype = len(weight.ty.shape) - 2, _dtype(data)
    shared: dict[str, Any] = {
        "strides": _sizes(strides, rank),
        "padding": _sizes(padding, rank),
        "dilation": _sizes(dilation, rank),
        "groups": groups,
        "out_dtype": _wide(dtype),
    }
    if transposed:
        output_padding = _sizes(output_padding, rank)
        product = _TRANSPOSED[rank](data, weight, output_padding=output_padding, **shared)
    else:
        product = _CONVOLUTIONS[rank](data, weight, **shared)
    if bias is not None:
        bias = importer.emit(relax.op.reshape(bias, (1, -1, *([1] * rank))))
    return _biased(importer, product, bias, dtype)


def _sizes(values: Any, rank: int) -> list[int]:
    sizes = [int(value) for value in values]
    return sizes * rank if len(sizes) == 1 else sizes


def _cumsum(importer: Importer, node: Node) -> relax.Var:
    data, axis = importer.retrieve_args(node)[:2]
    wanted = node.meta["val"].dtype
    dtype = importer._convert_data_type(wanted)
    return importer.emit(relax.op.cumsum(_cast(importer, data, dtype), axis, dtype))


def _embedding(importer: Importer, node: Node) -> relax.Var:
    table, indices = importer.retrieve_args(node)[:2]
    return _look_up(importer, table, indices, axis=0)


def _index_select(importer: Importer, node: Node) -> relax.Var:
    table, axis, indices = importer.retrieve_args(node)[:3]
    return _look_up(importer, table, indices, axis)


def _index(importer: Importer, node: Node) -> relax.Var:
    """``aten.index.Tensor`` along one axis, where an index below zero counts from the end."""
    table, indices = importer.retrieve_args(node)[:2]
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or "int" not in _dtype(given[0][1]):
        return importer._index_tensor(node)
    axis, index = given[0]
    dtype, size = _dtype(index), table.ty.shape[axis]
    from_end = importer.emit(relax.op.add(index, relax.const(int(size), dtype)))
    below_zero = importer.emit(relax.op.less(index, relax.const(0, dtype)))
    return _look_up(importer, table, importer.emit(relax.op.where(below_zero, from_end, index)), axis)


def _look_up(importer: Importer, table: relax.Expr, indices: relax.Expr, axis: int) -> relax.Var:
    """Take elements; an index beyond the table, at which torch raises, must not read other memory.

    It gives NaN, or the nearest element where the table's dtype has no NaN.
    """
    mode = "nan" if "float" in _dtype(table) else "clip"
    return importer.emit(relax.op.take(table, indices, axis=axis, mode=mode))


RULES: dict[str, Rule] = {
    **REDUCTIONS,
    "addmm.default": _addmm,
    "bmm.default": _matmul,
    "convolution.default": _convolution,
    "cumsum.default": _cumsum,
    "embedding.default": _embedding,
    "index.Tensor": _index,
    "index_select.default": _index_select,
    "linear.default": _linear,
    "matmul.default": _matmul,
    "mm.default": _matmul,
    "scaled_dot_product_attention.default": _attention,
}
"""By the operators' names as the importer writes them."""
