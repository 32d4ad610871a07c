"""Bounds, maxima and pools of floats that propagate NaN, as torch does.

    nn.relu(x)        bounded[i] = max(0, x[i])
    clip(x, l, h)     bounded[i] = min(h, max(l, x[i]))
    maximum(x, y)     chosen[i] = select(isnan(x[i]), x[i], max(x[i], y[i]))
    nn.max_pool2d(x)  border = x padded with -inf; max_pool[n, c, place] = max over taps of border

LLVM compiles ``max(a, b)`` to ``a > b ? a : b``, one x86 instruction that returns ``b`` if either is NaN. So
the bound stands first, at no cost, and of two tensors the first is tested too. A maximum over many elements
starts from -inf but forgets a NaN that a number follows: keeping it would take three instructions per
element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst

from worker.compiler.layout.extremes import extreme, first
from worker.compiler.layout.images import FLOATS, Window, pool_window_of
from worker.compiler.layout.relax_graph import operator_of
from worker.compiler.legalize.registry import Rule
from worker.compiler.schedules.nest import is_nan

Bound = Callable[[relax.Call], float | None]


def _between(lowest: Bound, highest: Bound) -> Rule:
    """Clamp numbers between two bounds, each of which may be None."""

    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        data, low, high = call.args[0], lowest(call), highest(call)
        dtype = str(data.ty.dtype)
        if "float" not in dtype:
            return None

        def bounded(x: te.Tensor) -> te.Tensor:
            def element(*at: Any) -> Any:
                value = x(*at)
                if low is not None:
                    value = tirx.Max(tirx.FloatImm(dtype, low), value)
                return value if high is None else tirx.Min(tirx.FloatImm(dtype, high), value)

            return te.compute(x.shape, element, name="bounded")

        return bb.call_te(bounded, data, primfunc_name_hint=operator_of(call).removeprefix("nn."))

    return rule


def _bound(place: int) -> Bound:
    """The bound that is an argument of the call."""
    return lambda call: float(call.args[place].value)


def _fixed(bound: float | None) -> Bound:
    return lambda _call: bound


def _larger(compare: Callable[[Any, Any], Any], name: str) -> Rule:
    """The larger or smaller of two numbers; NaN if one is NaN."""

    def rule(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
        left, right = call.args
        if "float" not in str(call.ty.dtype):
            return None
        if _is_constant(right):
            left, right = right, left
        chosen = _compared(compare, is_left_sure=_is_constant(left))
        return bb.call_te(chosen, left, right, primfunc_name_hint=name)

    return rule


def _is_constant(operand: relax.Expr) -> bool:
    """Whether an operand is a constant of one element that is not NaN."""
    if not isinstance(operand, GenericConst):
        return False
    value = operand.value.numpy()
    return bool(value.size == 1 and value.reshape(()) == value.reshape(()))


def _compared(compare: Callable[[Any, Any], Any], is_left_sure: bool) -> Callable[..., te.Tensor]:
    def chosen(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        shape = topi.add(left, right).shape
        left, right = topi.broadcast_to(left, shape), topi.broadcast_to(right, shape)

        def element(*at: Any) -> Any:
            one, other = left(*at), right(*at)
            value = compare(one, other)
            return value if is_left_sure else tirx.Select(is_nan(one), one, value)

        return te.compute(shape, element, name="chosen")

    return chosen


def _max_pool(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Pool plain images."""
    window = pool_window_of(call)
    if window is None or window.is_open or str(call.ty.dtype) not in FLOATS:
        return None
    pool = _pool(window, str(call.ty.dtype))
    return bb.call_te(pool, call.args[0], primfunc_name_hint=operator_of(call).removeprefix("nn."))


def _pool(window: Window, dtype: str) -> Callable[[te.Tensor], te.Tensor]:
    along, nothing = extreme(True, dtype), first(True, dtype)

    def pooled(data: te.Tensor) -> te.Tensor:
        image, taps = _with_border(data, window, nothing), window.taps()

        def element(n: Any, c: Any, *place: Any) -> Any:
            moves = zip(place, window.strides, taps, window.dilation, strict=True)
            at = [index * stride + tap * dilation for index, stride, tap, dilation in moves]
            return along(image(n, c, *at), axis=list(taps))

        return te.compute([*list(data.shape)[:2], *window.output], element, name="max_pool")

    return pooled


def _with_border(data: te.Tensor, window: Window, nothing: Any) -> te.Tensor:
    """Copy images with the window's border around each; return the images if it has none."""
    wide = tuple(size + sum(border) for size, border in zip(window.image, window.border, strict=True))
    if wide == window.image:
        return data

    def padded(n: Any, c: Any, *place: Any) -> Any:
        source = [index - before for index, (before, _) in zip(place, window.border, strict=True)]
        inside = [
            condition
            for index, size in zip(source, window.image, strict=True)
            for condition in (index >= 0, index < size)
        ]
        return tirx.if_then_else(tirx.all(*inside), data(n, c, *source), nothing)

    return te.compute([*list(data.shape)[:2], *wide], padded, name="border")


BOUNDS: dict[str, Rule] = {
    "relax.clip": _between(_bound(1), _bound(2)),
    "relax.maximum": _larger(tirx.Max, "maximum"),
    "relax.minimum": _larger(tirx.Min, "minimum"),
    "relax.nn.relu": _between(_fixed(0.0), _fixed(None)),
    **{f"relax.{name}": _max_pool for name in ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")},
}
"""Rules by operator."""
