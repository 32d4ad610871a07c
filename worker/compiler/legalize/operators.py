"""The table of our legalizations, and the short ones: extremes and their places, ``take``, multiply-add.

    argmax(x, axis)   x as [before, k, after]
                      extremes[b, a] = max over k of x[b, k, a]
                      places[b, a] = min over k of (k where x[b, k, a] == extremes[b, a])
    max(x, axis)      extremes[...] = max over the axes, from -inf
    take(x, [2, 0])   x[places[i], ...] without a bounds check, if all places are constant and valid
    ewise_fma(x, y, z)  x[i] * y[i] + z[i]

For ``argmax`` TVM reduces pairs of place and value, which LLVM does not vectorize; it vectorizes these two
reductions.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from worker.compiler.layout.extremes import Reduce, extreme
from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.legalize.bounds import BOUNDS
from worker.compiler.legalize.differences import DIFFERENCES
from worker.compiler.legalize.group_norm import group_norm, instance_norm
from worker.compiler.legalize.registry import Legalization, Rule
from worker.compiler.legalize.resize import find_taps, write_resize
from worker.compiler.legalize.scan import PRODUCT, SUM, Join, write_scan
from worker.compiler.legalize.scatter import scatter_elements
from worker.compiler.legalize.sorting import argsort, topk
from worker.compiler.schedules.processors import current_machine


def _extreme(is_largest: bool) -> Rule:
    """``argmax`` or ``argmin``: the extreme, then the first place of it."""

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
    """The numbers of elements before, along and after an axis; None is all axes as one."""
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
    """``max`` or ``min`` of floats, infinities included."""

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
    """``cumsum`` or ``cumprod``, by ``write_scan``."""

    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        data = call.args[0]
        shape = static_shape(data)
        if shape is None or prod(shape) == 0 or call.attrs.exclusive:
            return None
        sizes, dtype = _around(shape, call.attrs.axis), str(call.ty.dtype)
        strips = bb.emit(relax.op.reshape(data, sizes))
        function = write_scan(sizes, str(data.ty.dtype), dtype, join, current_machine())
        name = bb.add_func(function, join.name)
        scanned = bb.emit(relax.call_tir(name, [strips], relax.TensorType(sizes, dtype)))
        return relax.op.reshape(scanned, call.ty.shape)

    return rule


def _take(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``take`` by constant indices that are all within the table, without a check at run time."""
    data, indices = call.args
    shape = static_shape(data)
    if shape is None or not isinstance(indices, GenericConst) or call.attrs.axis is None:
        return None
    axis, places = int(call.attrs.axis) % len(shape), indices.value.numpy()
    if places.size == 0 or places.min() < 0 or places.max() >= shape[axis]:
        return None
    return bb.call_te(topi.take, data, indices, axis, mode="fast", primfunc_name_hint="take")


def _resize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """``image.resize2d`` of planes, by ``write_resize``."""
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
    function = write_resize(sizes, rows, columns, dtype, current_machine())
    wide = "float64" if dtype == "float64" else "float32"
    tables = [
        relax.const(table, kind)
        for taps in (columns, rows)
        for table, kind in ((taps.places, "int32"), (taps.weights, wide))
    ]
    planes = bb.emit(relax.op.reshape(data, sizes))
    returned = relax.TensorType((sizes[0], *outputs), dtype)
    resized = bb.emit(relax.call_tir(bb.add_func(function, "resize2d"), [planes, *tables], returned))
    return relax.op.reshape(resized, (*shape[:2], *outputs))


def _gather(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``gather_elements``; beyond the axis NaN, or the nearest integer. TVM reads beyond the tensor."""
    axis = int(call.attrs.axis) % len(call.args[0].ty.shape)

    def gather(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        size = data.shape[axis]

        def element(*place: Any) -> Any:
            index = indices(*place).astype("int64")
            at = tirx.Select(index < 0, index + size, index)
            nearest = tirx.max(tirx.IntImm("int64", 0), tirx.min(at, size - 1))
            value = data(*place[:axis], nearest, *place[axis + 1 :])
            if "float" not in str(data.dtype):
                return value
            is_inside = tirx.all(at >= 0, at < size)
            return tirx.if_then_else(is_inside, value, tirx.const(float("nan"), str(data.dtype)))

        return te.compute(indices.shape, element, "gather")

    return bb.call_te(gather, *call.args, primfunc_name_hint="gather_elements")


def _fused_multiply_add(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``ewise_fma``, which TVM does not legalize."""

    def fma(one: te.Tensor, other: te.Tensor, added: te.Tensor) -> te.Tensor:
        return te.compute(one.shape, lambda *place: one(*place) * other(*place) + added(*place), "fma")

    return bb.call_te(fma, *call.args, primfunc_name_hint="ewise_fma")


_RULES: dict[str, Rule] = {
    **BOUNDS,
    **DIFFERENCES,
    "relax.argmax": _extreme(is_largest=True),
    "relax.argmin": _extreme(is_largest=False),
    "relax.argsort": argsort,
    "relax.cumprod": _running(PRODUCT),
    "relax.cumsum": _running(SUM),
    "relax.ewise_fma": _fused_multiply_add,
    "relax.gather_elements": _gather,
    "relax.image.resize2d": _resize,
    "relax.max": _extremes(is_largest=True),
    "relax.min": _extremes(is_largest=False),
    "relax.nn.group_norm": group_norm,
    "relax.nn.instance_norm": instance_norm,
    "relax.scatter_elements": scatter_elements,
    "relax.take": _take,
    "relax.topk": topk,
}

LEGALIZATIONS = tuple(Legalization(operator, rule) for operator, rule in _RULES.items())
