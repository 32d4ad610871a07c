"""Convolutions and transposed convolutions in one to three spatial dimensions."""

from __future__ import annotations

from typing import Any

from tvm import relax

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, dtype_of
from worker.compiler.translation.rule import Rules, rules_of
from worker.compiler.translation.rules.matrix_products import biased
from worker.compiler.translation.rules.shapes import padded

_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_TRANSPOSED = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


def _convolution(
    emit: Emitter,
    data: relax.Expr,
    weight: relax.Expr,
    bias: relax.Expr | None,
    strides: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> relax.Expr:
    rank, dtype = len(weight.ty.shape) - 2, dtype_of(data)
    unbatched = len(data.ty.shape) == rank + 1
    if unbatched:
        data = emit(relax.op.expand_dims(data, 0))
    shared: dict[str, Any] = {
        "strides": _sizes(strides, rank),
        "padding": _sizes(padding, rank),
        "dilation": _sizes(dilation, rank),
        "groups": groups,
        "out_dtype": wide(dtype),
    }
    if transposed:
        beyond = _sizes(output_padding, rank)
        product = _transposed(emit, data, weight, beyond, shared)
    else:
        product = _CONVOLUTIONS[rank](data, weight, **shared)
    if bias is not None:
        bias = emit(relax.op.reshape(bias, (1, -1, *([1] * rank))))
    result = biased(emit, product, bias, dtype)
    return relax.op.squeeze(result, [0]) if unbatched else result


def _transposed(
    emit: Emitter, data: relax.Expr, weight: relax.Expr, beyond: list[int], shared: dict[str, Any]
) -> relax.Expr:
    """TVM limits output padding to less than a stride. A larger one keeps rows that padding would cut off."""
    operation, padding = _TRANSPOSED[len(beyond)], shared["padding"]
    if all(more < stride for more, stride in zip(beyond, shared["strides"], strict=True)):
        return operation(data, weight, output_padding=beyond, **shared)
    whole = emit(operation(data, weight, **{**shared, "padding": [0] * len(beyond)}))
    pairs = zip(reversed(padding), reversed(beyond), strict=True)
    widths = [width for cut, more in pairs for width in (-cut, more - cut)]
    return padded(emit, whole, widths, 0)


def _sizes(values: Any, rank: int) -> list[int]:
    sizes = [int(value) for value in values]
    return sizes * rank if len(sizes) == 1 else sizes


RULES: Rules = rules_of({"aten.convolution.default": _convolution})
