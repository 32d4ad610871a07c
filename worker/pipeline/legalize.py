"""Our own TensorIR for operators whose form in TVM loses accuracy or is not vectorized.

TVM's group and instance norm subtract the squared mean from the mean of squares, which cancels; its arg-max
reduces pairs, its running sums go through memory element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from worker.layout.extremes import Reduce, extreme
from worker.layout.views import Shape, are_known, is_one, shape_of, static_shape
from worker.pipeline.bounds import BOUNDS
from worker.pipeline.legalize_rows import argsort, scatter, topk
from worker.rewrites.legalizations import Legalization, Rule
from worker.schedules.annotations import OPAQUE, PATTERN
from worker.schedules.families.resize import find_taps, write_resize
from worker.schedules.families.scan import PRODUCT, SUM, Join, write_scan

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def _normalize_groups(bb: relax.BlockBuilder, call: relax.Call, groups: int) -> relax.Expr | None:
    """A norm over groups of channels and all that follow, as ``[N * groups, C / groups, rest]``."""
    data, gamma, beta = call.args
    shape, axis = shape_of(data), int(call.attrs.channel_axis)
    if shape is None or axis % len(shape) != 1 or not _reduces_what_follows(shape, call.attrs.axes):
        return None
    if not are_known([shape[1]]):
        return None
    channels, rest = int(shape[1]) // groups, prod(shape[2:], start=tirx.IntImm("int64", 1))
    strips = bb.emit(relax.op.reshape(data, (shape[0] * groups, channels, rest)))

    def norm(x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        return _norm_of_strips(x, gamma, beta, groups, float(call.attrs.epsilon))

    normal = bb.emit(bb.call_te(norm, strips, gamma, beta, primfunc_name_hint="group_norm"))
    return relax.op.reshape(normal, shape)


def _reduces_what_follows(shape: Shape, axes: Any) -> bool:
    """Whether axes are those after the channels, as far as they matter."""
    reduced = {int(axis) % len(shape) for axis in axes}
    return {axis for axis in reduced if not is_one(shape[axis])} == {
        axis for axis in range(2, len(shape)) if not is_one(shape[axis])
    }


def _norm_of_strips(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, groups: int, epsilon: float
) -> te.Tensor:
    """Rows of mean 0 and variance 1, scaled; ``x`` is ``[rows, channels, rest]``."""
    rows, channels, rest = x.shape
    dtype = _WIDE.get(str(x.dtype), str(x.dtype))
    count = (channels * rest).astype(dtype)

    def total(value: Callable[..., Any], name: str) -> te.Tensor:
        c, s = te.reduce_axis((0, channels), "c"), te.reduce_axis((0, rest), "s")
        return te.compute((rows,), lambda r: te.sum(value(r, c, s), axis=(c, s)), name=name)

    def read(r: Any, c: Any, s: Any) -> Any:
        return x[r, c, s].astype(dtype)

    sums = total(read, "sums")
    means = te.compute((rows,), lambda r: sums[r] / count, name="means")
    squares = total(lambda *at: (read(*at) - means[at[0]]) * (read(*at) - means[at[0]]), "squares")
    scales = te.compute(
        (rows,), lambda r: tirx.rsqrt(squares[r] / count + tirx.const(epsilon, dtype)), name="scales"
    )

    def scaled(r: Any, c: Any, s: Any) -> Any:
        channel = r % groups * channels + c
        unit = (read(r, c, s) - means[r]) * scales[r]
        value = unit * gamma[channel].astype(dtype) + beta[channel].astype(dtype)
        return value.astype(x.dtype)

    return te.compute((rows, channels, rest), scaled, name="normal")


def _group_norm(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    return _normalize_groups(bb, call, int(call.attrs.num_groups))


def _instance_norm(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    shape = static_shape(call.args[0])
    if shape is None:
        return None
    own = _normalize_groups(bb, call, shape[1])
    return _normalize_batch(bb, call, shape) if own is None else own


def _normalize_batch(bb: relax.BlockBuilder, call: relax.Call, shape: tuple[int, ...]) -> relax.Expr | None:
    """Statistics of each channel over the batch too: three passes, as each needs all of the one before."""
    data, gamma, beta = call.args
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axes)
    if int(call.attrs.channel_axis) % len(shape) != 1 or axes != [0, *range(2, len(shape))]:
        return None
    batch, channels, rest = shape[0], shape[1], prod(shape[2:])
    dtype = _WIDE.get(str(data.ty.dtype), str(data.ty.dtype))
    count, epsilon = tirx.const(float(batch * rest), dtype), tirx.const(float(call.attrs.epsilon), dtype)

    def total(value: Callable[..., Any], name: str) -> te.Tensor:
        n, s = te.reduce_axis((0, batch), "n"), te.reduce_axis((0, rest), "s")
        return te.compute((channels,), lambda c: te.sum(value(n, c, s), axis=(n, s)), name=name)

    def means(x: te.Tensor) -> te.Tensor:
        sums = total(lambda *at: x[at].astype(dtype), "sums")
        return te.compute((channels,), lambda c: sums[c] / count, name="means")

    def scales(x: te.Tensor, mean: te.Tensor) -> te.Tensor:
        def square(n: Any, c: Any, s: Any) -> Any:
            return (x[n, c, s].astype(dtype) - mean[c]) * (x[n, c, s].astype(dtype) - mean[c])

        squares = total(square, "squares")
        return te.compute((channels,), lambda c: tirx.rsqrt(squares[c] / count + epsilon), name="scales")

    def scaled(x: te.Tensor, mean: te.Tensor, scale: te.Tensor, g: te.Tensor, b: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, s: Any) -> Any:
            unit = (x[n, c, s].astype(dtype) - mean[c]) * scale[c]
            return (unit * g[c].astype(dtype) + b[c].astype(dtype)).astype(x.dtype)

        return te.compute((batch, channels, rest), element, name="normal")

    strips = bb.emit(relax.op.reshape(data, (batch, channels, rest)))
    mean = bb.emit(bb.call_te(means, strips, primfunc_name_hint="means"))
    scale = bb.emit(_alone(bb, bb.call_te(scales, strips, mean, primfunc_name_hint="scales")))
    normal = bb.emit(bb.call_te(scaled, strips, mean, scale, gamma, beta, primfunc_name_hint="batch_norm"))
    return relax.op.reshape(normal, shape)


def _alone(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The call of a function with which nothing is fused."""
    name = call.args[0]
    bb.update_func(name, bb.get()[name].with_attr(PATTERN, OPAQUE))
    return call


def _extreme(is_largest: bool) -> Rule:
    """``argmax`` or ``argmin``: the extreme, then the first place where it stands."""

    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        shape = static_shape(call.args[0])
        if shape is None or prod(shape) == 0:
            return None
        axis = call.attrs.axis
        before, count, after = _around(shape, axis)
        strips = bb.emit(relax.op.reshape(call.args[0], (before, count, after)))

        def place(x: te.Tensor) -> te.Tensor:
            return _place_of_extreme(x, is_largest)

        places = bb.emit(bb.call_te(place, strips, primfunc_name_hint="argmax" if is_largest else "argmin"))
        return relax.op.reshape(places, call.ty.shape)

    return rule


def _around(shape: tuple[int, ...], axis: Any) -> tuple[int, int, int]:
    """The elements before, along and after an axis; all lie along None."""
    if axis is None:
        return 1, prod(shape), 1
    axis = int(axis) % len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _place_of_extreme(x: te.Tensor, is_largest: bool) -> te.Tensor:
    before, count, after = x.shape
    dtype = str(x.dtype)
    along = extreme(is_largest, dtype)
    last = tirx.const(int(count) - 1, "int32")
    lowest = te.comm_reducer(lambda one, other: tirx.min(one, other), lambda _dtype: last)

    def axis() -> tirx.IterVar:
        return te.reduce_axis((0, count), "k")

    k, again = axis(), axis()
    extremes = te.compute((before, after), lambda b, a: along(x[b, k, a], axis=k), name="extremes")

    def place(b: Any, a: Any) -> Any:
        here = tirx.Select(x[b, again, a] == extremes[b, a], again.var.astype("int32"), last)
        return lowest(here, axis=again)

    places = te.compute((before, after), place, name="places")
    return te.compute((before, after), lambda b, a: places[b, a].astype("int64"), name="wide")


def _extremes(is_largest: bool) -> Rule:
    """``max`` or ``min`` of floats, to which infinities count."""

    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        data, dtype = call.args[0], str(call.ty.dtype)
        if "float" not in dtype or not isinstance(data.ty.shape, relax.ShapeExpr):
            return None
        rank = data.ty.ndim
        axes = frozenset(int(axis) % rank for axis in call.attrs.axis or range(rank))
        reduced = partial(_reduce, extreme(is_largest, dtype), axes, bool(call.attrs.keepdims))
        return bb.call_te(reduced, data, primfunc_name_hint="max" if is_largest else "min")

    return rule


def _reduce(reduce: Reduce, axes: frozenset[int], keepdims: bool, x: te.Tensor) -> te.Tensor:
    along = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in sorted(axes)}
    kept = [axis for axis in range(len(x.shape)) if axis not in axes or keepdims]

    def element(*indices: Any) -> Any:
        places = {**dict(zip(kept, indices, strict=True)), **along}
        return reduce(x[tuple(places[axis] for axis in range(len(x.shape)))], axis=list(along.values()))

    sizes = [1 if axis in axes else x.shape[axis] for axis in kept]
    return te.compute(sizes, element, name="extremes")


def _running(join: Join) -> Rule:
    """``cumsum`` or ``cumprod``."""

    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        data = call.args[0]
        shape = static_shape(data)
        if shape is None or prod(shape) == 0 or call.attrs.exclusive:
            return None
        sizes, dtype = _around(shape, call.attrs.axis), str(call.ty.dtype)
        strips = bb.emit(relax.op.reshape(data, sizes))
        function = write_scan(sizes, str(data.ty.dtype), dtype, join, tvm.target.Target.current())
        name = bb.add_func(function, join.name)
        scanned = bb.emit(relax.call_tir(name, [strips], relax.TensorType(sizes, dtype)))
        return relax.op.reshape(scanned, call.ty.shape)

    return rule


def _take(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``take`` by constant indices, all of which lie within the table: nothing is left to check."""
    data, indices = call.args
    shape = static_shape(data)
    if shape is None or not isinstance(indices, GenericConst) or call.attrs.axis is None:
        return None
    axis, places = int(call.attrs.axis) % len(shape), indices.value.numpy()
    if places.size == 0 or places.min() < 0 or places.max() >= shape[axis]:
        return None
    return bb.call_te(topi.take, data, indices, axis, mode="fast", primfunc_name_hint="take")


def _resize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``image.resize2d`` of planes, by tables of places and weights."""
    data, size = call.args
    shape, attributes = static_shape(data), call.attrs
    dtype = str(data.ty.dtype)
    if shape is None or str(attributes.layout) != "NCHW" or "float" not in dtype or prod(shape) == 0:
        return None
    if int(attributes.cubic_exclude) != 0 or not all(isinstance(value, tirx.IntImm) for value in size):
        return None
    outputs = [int(value) for value in size]
    rows, columns = (
        find_taps(
            str(attributes.method),
            str(attributes.coordinate_transformation_mode),
            given,
            wanted,
            float(attributes.cubic_alpha),
        )
        for given, wanted in zip(shape[2:], outputs, strict=True)
    )
    if rows is None or columns is None:
        return None
    sizes = (shape[0] * shape[1], shape[2], shape[3])
    function = write_resize(sizes, rows, columns, dtype, tvm.target.Target.current())
    wide = "float64" if dtype == "float64" else "float32"
    tables = [
        relax.const(table) for taps in (columns, rows) for table in (taps.places, taps.weights.astype(wide))
    ]
    planes = bb.emit(relax.op.reshape(data, sizes))
    returned = relax.TensorType((sizes[0], *outputs), dtype)
    resized = bb.emit(relax.call_tir(bb.add_func(function, "resize2d"), [planes, *tables], returned))
    return relax.op.reshape(resized, (*shape[:2], *outputs))


_RULES: dict[str, Rule] = {
    **BOUNDS,
    "relax.argmax": _extreme(is_largest=True),
    "relax.argmin": _extreme(is_largest=False),
    "relax.argsort": argsort,
    "relax.cumprod": _running(PRODUCT),
    "relax.cumsum": _running(SUM),
    "relax.image.resize2d": _resize,
    "relax.max": _extremes(is_largest=True),
    "relax.min": _extremes(is_largest=False),
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _instance_norm,
    "relax.scatter_elements": scatter,
    "relax.take": _take,
    "relax.topk": topk,
}

LEGALIZATIONS = tuple(Legalization(operator, rule) for operator, rule in _RULES.items())
