"""Max and average pooling, adaptive max pooling, and fractional max pooling."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

import torch
from torch import Tensor
from tvm import relax, te, tirx

from worker.compiler.translation.dtypes import wide
from worker.compiler.translation.emitter import Emitter, dtype_of, fixed, shape_of
from worker.compiler.translation.rule import Decomposition, Rules, Translate, rules_of

Places = Callable[[int, Any, Any], Any]
"""From an axis, a result position and an offset within its window to the position that is read."""
PLANE, VOLUME = 2, 3
"""The number of pooled axes."""
_PLACES = 1
"""The index of the result that holds positions."""
STRIDES = 2
"""The index of a max pool's strides among its arguments. Absent or empty strides equal the window; TVM
supports absent ones only."""


def _adaptive_max(rank: int) -> Translate:
    """Window ``i`` is from ``floor(i * given / wanted)`` up to ``ceil((i + 1) * given / wanted)``.

    All windows get the length of the longest; shorter ones repeat their last element.
    """

    def translate(emit: Emitter, data: relax.Expr, sizes: list[int]) -> tuple[Any, Any]:
        given = fixed(shape_of(data)[-rank:], "pooling")
        pairs = list(zip(given, sizes, strict=True))
        lengths = [max(_end(i, *pair) - _start(i, *pair) for i in range(pair[1])) for pair in pairs]
        return _pooled(emit, data, rank, lengths, lambda axis, i, tap: _within(i, tap, *pairs[axis]))

    return translate


def _max_with_places(rank: int) -> Translate:
    """TVM's max pool returns no positions."""

    def translate(
        emit: Emitter,
        data: relax.Expr,
        window: list[int],
        strides: list[int],
        padding: list[int],
        dilation: list[int],
        is_ceiled: bool,
    ) -> Any:
        is_stock = strides or len(emit.node.args) <= STRIDES
        if is_stock and not emit.reads(_PLACES):
            return emit.stock()
        windows, steps, before, apart = (
            _sizes(one, rank) for one in (window, strides or window, padding, dilation)
        )

        def place(axis: int, i: Any, tap: Any) -> Any:
            return i * steps[axis] - before[axis] + tap * apart[axis]

        return _pooled(emit, data, rank, windows, place)

    return translate


def _sizes(values: list[int], rank: int) -> list[int]:
    return [*values] * rank if len(values) == 1 else [*values]


def _pooled(
    emit: Emitter, data: relax.Expr, rank: int, lengths: list[int], places: Places
) -> tuple[Any, Any]:
    """The maximum of each window, and its position in the flattened plane or volume."""
    shape = tuple(emit.results[0].shape)[-rank:]
    unbatched = len(shape_of(data)) == rank + 1
    batched = emit(relax.op.expand_dims(data, 0)) if unbatched else data

    def compute(tensor: te.Tensor) -> list[te.Tensor]:
        return _largest(tensor, shape, lengths, places)

    if not emit.reads(_PLACES):
        values = emit.tensor_expression(lambda tensor: _largest_only(tensor, shape, lengths, places), batched)
        return (emit(relax.op.squeeze(values, [0])) if unbatched else values), None
    pair = emit.tensor_expression(compute, emit.cast(batched, wide(dtype_of(data))))
    values = emit.cast(emit(relax.TupleGetItem(pair, 0)), dtype_of(data))
    found = emit(relax.TupleGetItem(pair, 1))
    if unbatched:
        return emit(relax.op.squeeze(values, [0])), emit(relax.op.squeeze(found, [0]))
    return values, found


def _largest(x: te.Tensor, shape: tuple[int, ...], lengths: list[int], places: Places) -> list[te.Tensor]:
    """The first of equal maxima. NaN exceeds all numbers. Positions outside the data are ignored."""
    taps = [te.reduce_axis((0, length), "tap") for length in lengths]
    given = x.shape[2:]

    def join(left: Any, right: Any) -> tuple[Any, Any]:
        is_larger = tirx.Or(right[0] > left[0], tirx.all(tirx.isnan(right[0]), tirx.Not(tirx.isnan(left[0]))))
        is_same = tirx.Or(right[0] == left[0], tirx.all(tirx.isnan(right[0]), tirx.isnan(left[0])))
        is_first = tirx.all(is_same, right[1] < left[1])
        keeps = tirx.Not(tirx.Or(is_larger, is_first))
        return tirx.Select(keeps, left[0], right[0]), tirx.Select(keeps, left[1], right[1])

    def identity(value: str, place: str) -> tuple[Any, Any]:
        return _least(value), tirx.max_value(place)

    reducer = te.comm_reducer(join, identity, name="largest")

    def element(n: Any, c: Any, *at: Any) -> Any:
        where = [places(axis, i, tap.var) for axis, (i, tap) in enumerate(zip(at, taps, strict=True))]
        flat = tirx.const(0, "int64")
        for place, size in zip(where, given, strict=True):
            flat = flat * size + place
        inside = _inside(where, given)
        clamped = [tirx.max(tirx.min(place, size - 1), 0) for place, size in zip(where, given, strict=True)]
        value = tirx.Select(inside, x(n, c, *clamped), _least(str(x.dtype)))
        return reducer((value, tirx.Select(inside, flat.astype("int64"), tirx.max_value("int64"))), axis=taps)

    return list(te.compute([*x.shape[:2], *shape], element, name="largest"))


def _largest_only(x: te.Tensor, shape: tuple[int, ...], lengths: list[int], places: Places) -> te.Tensor:
    taps = [te.reduce_axis((0, length), "tap") for length in lengths]
    largest = te.comm_reducer(lambda one, other: tirx.max(one, other), _least)

    def element(n: Any, c: Any, *at: Any) -> Any:
        where = [places(axis, i, tap) for axis, (i, tap) in enumerate(zip(at, taps, strict=True))]
        inside = _inside(where, x.shape[2:])
        return largest(tirx.if_then_else(inside, x(n, c, *where), _least(str(x.dtype))), axis=taps)

    return te.compute([*x.shape[:2], *shape], element, name="largest")


def _inside(places: list[Any], sizes: Any) -> Any:
    bounds = [tirx.all(place >= 0, place < size) for place, size in zip(places, sizes, strict=True)]
    return tirx.all(*bounds)


def _mean(rank: int) -> Translate:
    """TVM divides by the number of elements only, so another divisor rescales the mean."""
    operation = relax.op.nn.avg_pool2d if rank == PLANE else relax.op.nn.avg_pool3d

    def translate(
        emit: Emitter,
        data: relax.Expr,
        window: list[int],
        strides: list[int],
        padding: list[int],
        is_ceiled: bool,
        counts_padding: bool,
        divisor: int | None,
    ) -> Any:
        dtype = dtype_of(data)
        if divisor is None and wide(dtype) == dtype:
            return emit.stock()
        data = emit.cast(data, wide(dtype))
        windows, steps, before = (_sizes(one, rank) for one in (window, strides or window, padding))
        unbatched = data.ty.ndim == rank + 1
        batched = emit(relax.op.expand_dims(data, 0)) if unbatched else data
        if is_ceiled and divisor is not None:
            batched, before, is_ceiled = _padded(emit, batched, windows, steps, before), [0] * rank, False
        whole = counts_padding or divisor is not None
        mean = emit(operation(batched, windows, steps, before, ceil_mode=is_ceiled, count_include_pad=whole))
        if divisor is not None:
            mean = emit(relax.op.multiply(mean, relax.const(prod(windows) / divisor, wide(dtype))))
        return emit.cast(emit(relax.op.squeeze(mean, [0])) if unbatched else mean, dtype)

    return translate


def _padded(
    emit: Emitter, data: relax.Expr, windows: list[int], steps: list[int], before: list[int]
) -> relax.Expr:
    """Pad with zeros up to the end of the last window."""
    given, counts = fixed(shape_of(data)[2:], "pooling"), emit.shape[-len(windows) :]
    pairs = [0, 0, 0, 0]
    for size, count, window, step, width in zip(given, counts, windows, steps, before, strict=True):
        pairs += [width, max((count - 1) * step + window - size - width, 0)]
    return emit(relax.op.nn.pad(data, pairs))


def _least(dtype: str) -> Any:
    """The smallest value of a dtype; TVM's own maximum starts above negative infinity."""
    return tirx.const(-inf, dtype) if "float" in dtype else tirx.min_value(dtype)


def _within(place: Any, tap: Any, given: int, wanted: int) -> Any:
    if given % wanted == 0:
        return place * (given // wanted) + tap
    return tirx.Min(_start(place, given, wanted) + tap, _end(place, given, wanted) - 1)


def _start(place: Any, given: int, wanted: int) -> Any:
    return place * given // wanted


def _end(place: Any, given: int, wanted: int) -> Any:
    return ((place + 1) * given + (wanted - 1)) // wanted


def _adaptive_mean(operator: torch._ops.OpOverload) -> Callable[..., Tensor]:
    """Sums narrow floats in float32. TVM's operator sums in the dtype of its data."""

    def pool(data: Tensor, sizes: list[int]) -> Tensor:
        if data.dtype not in (torch.float16, torch.bfloat16):
            return NotImplemented
        pooled: Tensor = operator(data.float(), sizes).to(data.dtype)
        return pooled

    return pool


Pool = Callable[[Tensor, list[int], list[int], Tensor], tuple[Tensor, Tensor]]


def _fractional_max(drawn_for: tuple[int, ...]) -> Pool:
    """Fractional max pooling: windows begin at a random offset and a fractional step.

    Source: torch's ``aten/src/ATen/native/FractionalMaxPooling.h``.

    Args:
        drawn_for: for each pooled axis, the index of its random number.
    """
    rank = len(drawn_for)

    def pool(data: Tensor, window: list[int], sizes: list[int], drawn: Tensor) -> tuple[Tensor, Tensor]:
        whole = data if data.dim() == rank + 2 else data.unsqueeze(0)
        batch, channels, given = whole.shape[0], whole.shape[1], whole.shape[2:]
        flat = torch.zeros((), dtype=torch.int64)
        for axis in range(rank):
            number = drawn.reshape(batch, channels, rank)[..., drawn_for[axis]]
            begin = _begin(number, given[axis], sizes[axis], window[axis])
            places = begin.unsqueeze(-1) + torch.arange(window[axis])
            shape = [batch, channels, *[1] * (2 * rank)]
            shape[2 + axis], shape[2 + rank + axis] = sizes[axis], window[axis]
            flat = flat * given[axis] + places.reshape(shape)
        flat = flat.reshape(batch, channels, -1)
        taps = [batch, channels, *sizes, prod(window)]
        values, taken = whole.flatten(2).gather(2, flat).reshape(taps).max(-1)
        places = flat.reshape(taps).gather(-1, taken.unsqueeze(-1)).squeeze(-1)
        return values.reshape(*data.shape[:-rank], *sizes), places.reshape(*data.shape[:-rank], *sizes)

    return pool


def _begin(drawn: Tensor, given: int, wanted: int, window: int) -> Tensor:
    """The beginnings of the windows of an axis. The last window ends at the edge."""
    last = torch.full((*drawn.shape, 1), given - window)
    if wanted == 1:
        return last
    step = (given - window) / (wanted - 1)
    start = drawn.unsqueeze(-1)
    near = ((torch.arange(wanted - 1) + start) * step).long() - (start * step).long()
    return torch.cat([near, last], -1)


RULES: Rules = (
    *rules_of(
        {
            "aten.avg_pool2d.default": _mean(PLANE),
            "aten.avg_pool3d.default": _mean(VOLUME),
            "aten.max_pool2d_with_indices.default": _max_with_places(PLANE),
            "aten.max_pool3d_with_indices.default": _max_with_places(VOLUME),
            "aten.adaptive_max_pool1d.default": _adaptive_max(1),
            "aten.adaptive_max_pool2d.default": _adaptive_max(2),
            "aten.adaptive_max_pool3d.default": _adaptive_max(3),
        }
    ),
    *(
        Decomposition(str(operator), _adaptive_mean(operator))
        for operator in (
            torch.ops.aten._adaptive_avg_pool2d.default,
            torch.ops.aten._adaptive_avg_pool3d.default,
        )
    ),
    Decomposition("aten.fractional_max_pool2d.default", _fractional_max((1, 0))),
    Decomposition("aten.fractional_max_pool3d.default", _fractional_max((0, 1, 2))),
)
