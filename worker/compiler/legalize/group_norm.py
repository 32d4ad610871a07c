"""Group norm, instance norm, and instance norm over the batch: first means, then squares of differences.

    group, instance   x as [N * groups, C / groups, rest], one function:
                        means[r] = sum of x[r] / count
                        scales[r] = rsqrt(sum of (x[r] - means[r])^2 / count + epsilon)
                        normal[r, c, s] = (x[r, c, s] - means[r]) * scales[r] * gamma + beta
    over the batch    x as [N, C, rest], three functions: means[c], scales[c], batch_norm[n, c, s]

TVM's legalizations subtract the squared mean from the mean of squares, which cancels. Sums of float16 and
bfloat16 are float32. Over the batch, each pass needs all of the one before, hence three functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax, te, tirx

from worker.compiler.layout.relax_graph import Shape, are_known, is_one, shape_of, static_shape
from worker.compiler.schedules.annotations import OPAQUE, PATTERN

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def _normalize_groups(bb: relax.BlockBuilder, call: relax.Call, groups: int) -> relax.Expr | None:
    """A norm over groups of channels and the axes after them, as ``[N * groups, C / groups, rest]``."""
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
    """Whether axes are those after the channels; axes of size 1 do not matter."""
    reduced = {int(axis) % len(shape) for axis in axes}
    return {axis for axis in reduced if not is_one(shape[axis])} == {
        axis for axis in range(2, len(shape)) if not is_one(shape[axis])
    }


def _norm_of_strips(
    x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, groups: int, epsilon: float
) -> te.Tensor:
    """Rows of mean 0 and variance 1, times gamma, plus beta; ``x`` is ``[rows, channels, rest]``."""
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


def group_norm(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``nn.group_norm`` if the channels are axis 1."""
    return _normalize_groups(bb, call, int(call.attrs.num_groups))


def instance_norm(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``nn.instance_norm``, whose axes may include the batch."""
    shape = static_shape(call.args[0])
    if shape is None:
        return None
    own = _normalize_groups(bb, call, shape[1])
    return _normalize_batch(bb, call, shape) if own is None else own


def _normalize_batch(bb: relax.BlockBuilder, call: relax.Call, shape: tuple[int, ...]) -> relax.Expr | None:
    """A norm by the statistics of each channel over the whole batch."""
    data, gamma, beta = call.args
    axes = sorted(int(axis) % len(shape) for axis in call.attrs.axes)
    if int(call.attrs.channel_axis) % len(shape) != 1 or axes != [0, *range(2, len(shape))]:
        return None
    sizes = (shape[0], shape[1], prod(shape[2:]))
    dtype = _WIDE.get(str(data.ty.dtype), str(data.ty.dtype))
    norm = _BatchNorm(*sizes, dtype, float(call.attrs.epsilon))
    strips = bb.emit(relax.op.reshape(data, sizes))
    mean = bb.emit(bb.call_te(norm.means, strips, primfunc_name_hint="means"))
    scale = bb.emit(_alone(bb, bb.call_te(norm.scales, strips, mean, primfunc_name_hint="scales")))
    normal = bb.emit(
        bb.call_te(norm.scaled, strips, mean, scale, gamma, beta, primfunc_name_hint="batch_norm")
    )
    return relax.op.reshape(normal, shape)


@dataclass(frozen=True)
class _BatchNorm:
    """Three passes over ``[batch, channels, rest]``, computed in ``dtype``."""

    batch: int
    channels: int
    rest: int
    dtype: str
    epsilon: float

    def means(self, x: te.Tensor) -> te.Tensor:
        """The mean of each channel."""
        sums = self._total(lambda *at: x[at].astype(self.dtype), "sums")
        return te.compute((self.channels,), lambda c: sums[c] / self._count, name="means")

    def scales(self, x: te.Tensor, mean: te.Tensor) -> te.Tensor:
        """One divided by the standard deviation of each channel."""

        def square(n: Any, c: Any, s: Any) -> Any:
            return (x[n, c, s].astype(self.dtype) - mean[c]) * (x[n, c, s].astype(self.dtype) - mean[c])

        squares, epsilon = self._total(square, "squares"), tirx.const(self.epsilon, self.dtype)
        return te.compute(
            (self.channels,), lambda c: tirx.rsqrt(squares[c] / self._count + epsilon), name="scales"
        )

    def scaled(
        self, x: te.Tensor, mean: te.Tensor, scale: te.Tensor, gamma: te.Tensor, beta: te.Tensor
    ) -> te.Tensor:
        """Channels of mean 0 and variance 1, times gamma, plus beta."""

        def element(n: Any, c: Any, s: Any) -> Any:
            unit = (x[n, c, s].astype(self.dtype) - mean[c]) * scale[c]
            return (unit * gamma[c].astype(self.dtype) + beta[c].astype(self.dtype)).astype(x.dtype)

        return te.compute((self.batch, self.channels, self.rest), element, name="normal")

    @property
    def _count(self) -> Any:
        return tirx.const(float(self.batch * self.rest), self.dtype)

    def _total(self, value: Callable[..., Any], name: str) -> te.Tensor:
        n, s = te.reduce_axis((0, self.batch), "n"), te.reduce_axis((0, self.rest), "s")
        return te.compute((self.channels,), lambda c: te.sum(value(n, c, s), axis=(n, s)), name=name)


def _alone(bb: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The same call, of a function that fusion leaves alone."""
    name = call.args[0]
    bb.update_func(name, bb.get()[name].with_attr(PATTERN, OPAQUE))
    return call
