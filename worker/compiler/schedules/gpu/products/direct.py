"""Sums of few products whose factors no two results share, such as depthwise convolutions::

    for results, in blocks and threads:            # neighboring threads store neighboring vectors
        sums[pixels, lanes] = 0
        for depth:                                 # unrolled
            load a vector of the factor that all pixels share
            for pixel:                             # unrolled
                sums += vector of the other factor * that vector
        epilogue

A thread computes a vector of results, at ``pixels`` neighboring places of the axis before. Threads read the
other factor's overlapping windows from L1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd, prod
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Block, Places, uses
from worker.compiler.schedules.gpu.products import threads as gt
from worker.compiler.schedules.gpu.products.contraction import (
    Group,
    Sum,
    aligned_run,
    narrow_factor,
    vector_bits,
)
from worker.compiler.schedules.gpu.products.plan import DirectPlan
from worker.compiler.schedules.gpu.products.threads import INT, number
from worker.compiler.schedules.gpu.products.tiles import wide

_VECTOR_BYTES = 16
_UNROLLED = 32


@dataclass(frozen=True)
class DirectShape:
    """What a plan depends on.

    Attributes:
        vector: the results that a thread can compute with loads of vectors.
        pixels: the size of the axis before; 1 if no factor is shared along it.
        results: how many there are.
        depth: the products of a sum.
    """

    vector: int
    pixels: int
    results: int
    depth: int


class DirectProduct:
    """The loops of a sum of few products."""

    def __init__(self, found: Sum, plan: DirectPlan) -> None:
        self.found, self.plan = found, plan
        self._inner, self._pixel, self._outer = _directions(found)

    def statement(self) -> tirx.Stmt:
        """The kernel."""
        plan = self.plan
        per_row = self._inner.extent // plan.vector
        groups = ceil(self._pixel.extent / plan.pixels) if self._pixel else 1
        pieces = self._outer.size * groups * per_row

        def body(block: Any, thread: Any) -> tirx.Stmt:
            piece = block * plan.threads + thread
            lane_start = tirx.floormod(piece, per_row) * plan.vector
            rest = tirx.floordiv(piece, per_row)
            pixel_start = tirx.floormod(rest, groups) * plan.pixels
            outer = tirx.floordiv(rest, groups)
            statement = self._compute(outer, pixel_start, lane_start)
            return statement if pieces % plan.threads == 0 else gt.when(piece < pieces, statement)

        return gt.bound(
            "blockIdx.x",
            ceil(pieces / plan.threads),
            lambda block: gt.bound("threadIdx.x", plan.threads, lambda thread: body(block, thread)),
        )

    def _compute(self, outer: Any, pixel_start: Any, lane_start: Any) -> tirx.Stmt:
        plan, found = self.plan, self.found
        one_factor, shared = _ordered(found)
        other = narrow_factor(one_factor, found.dtype)
        shared = narrow_factor(shared, found.dtype)
        is_shared = self._pixel is not None and not uses(shared, self._pixel)
        dtype = "float32" if found.dtype.startswith(("float", "bfloat")) else "int32"
        sums = nest.registers((plan.pixels * plan.vector,), dtype, "sums")
        held = nest.registers((plan.vector,), nest.dtype_of(other), "values")
        kept = nest.registers((plan.vector,), nest.dtype_of(shared), "shared_values")
        depth = Group(found.block.reduced)

        def places(pixel: Any, lane: Any) -> Places:
            result = {**self._outer.places(wide(outer)), self._inner.var: wide(lane_start) + wide(lane)}
            if self._pixel:
                result[self._pixel.var] = wide(pixel)
            return result

        def step(index: Any) -> tirx.Stmt:
            at_depth = depth.places(wide(index))

            def load(registers: Any, factor: Any, pixel: Any) -> tirx.Stmt:
                def element(lane: Any) -> tirx.Stmt:
                    return nest.store(
                        registers, nest.substitute(factor, places(pixel, lane) | at_depth), lane
                    )

                if _width(found, nest.loads_of(factor), self._inner) % plan.vector:
                    return gt.unrolled(plan.vector, element)
                return nest.vectorized(plan.vector, element, INT)

            def one(pixel: int) -> tirx.Stmt:
                place = pixel_start + pixel
                multiply = gt.unrolled(
                    plan.vector,
                    lambda lane: nest.store(
                        sums,
                        sums[number(pixel * plan.vector) + lane]
                        + _as(held[lane], dtype) * _as(kept[lane], dtype),
                        number(pixel * plan.vector) + lane,
                    ),
                )
                loads = [load(held, other, place)]
                if not is_shared:
                    loads.append(load(kept, shared, place))
                return self._if_inside(place, nest.sequence(*loads, multiply))

            pixels = gt.repeated(plan.pixels, one)
            return nest.sequence(load(kept, shared, pixel_start), pixels) if is_shared else pixels

        def finish(pixel: int) -> tirx.Stmt:
            place = pixel_start + pixel
            stored = nest.vectorized(
                plan.vector,
                lambda lane: found.result(sums[number(pixel * plan.vector) + lane], places(place, lane)),
                INT,
            )
            return self._if_inside(place, stored)

        size = depth.size
        steps = gt.unrolled_by_compiler(size, step) if size <= _UNROLLED else gt.serial(size, step)
        return nest.sequence(
            nest.declare(sums),
            nest.declare(held),
            nest.declare(kept),
            gt.unrolled(plan.pixels * plan.vector, lambda at: nest.store(sums, tirx.const(0, dtype), at)),
            steps,
            gt.repeated(plan.pixels, finish),
        )

    def _if_inside(self, pixel: Any, statement: tirx.Stmt) -> tirx.Stmt:
        if self._pixel is None or self._pixel.extent % self.plan.pixels == 0:
            return statement
        return gt.when(pixel < self._pixel.extent, statement)


def direct_shape(found: Sum) -> DirectShape:
    """What a plan for a sum depends on."""
    inner, pixel, outer = _directions(found)
    shares = pixel is not None and any(not uses(factor, pixel) for factor in found.factors)
    return DirectShape(
        vector=_vector(found, inner),
        pixels=pixel.extent if shares and pixel else 1,
        results=outer.size * (pixel.extent if pixel else 1) * inner.extent,
        depth=prod(axis.extent for axis in found.block.reduced),
    )


def _directions(found: Sum) -> tuple[Axis, Axis | None, Group]:
    """The innermost axis, the one before it, and the others."""
    block: Block = found.block
    long = [axis for axis in block.spatial if axis.extent > 1] or list(block.spatial[-1:])
    inner = long[-1]
    pixel = long[-2] if len(long) > 1 else None
    rest = tuple(axis for axis in block.spatial if axis is not inner and axis is not pixel)
    return inner, pixel, Group(rest)


def _ordered(found: Sum) -> tuple[Any, Any]:
    """Both factors, the second one being the one that neighboring pixels share, if any."""
    _, pixel, _ = _directions(found)
    one, other = found.factors
    return (other, one) if pixel is not None and not uses(one, pixel) else (one, other)


def _vector(found: Sum, inner: Axis) -> int:
    """The results whose first factor can be loaded at once; the second one is loaded for many pixels."""
    first, _ = _ordered(found)
    if any(uses(condition, inner) for condition in found.conditions):
        return 1
    size = vector_bits(str(found.output.dtype))
    width = gcd(_VECTOR_BYTES * 8 // size, found.stored_run(inner))
    return gcd(width, _width(found, nest.loads_of(first), inner))


def _width(found: Sum, loads: Sequence[Any], inner: Axis) -> int:
    """The neighbors that can be loaded at once."""
    every = (*found.block.spatial, *found.block.reduced)
    width = inner.extent
    for load in loads:
        if any(uses(index, inner) for index in load.indices):
            width = gcd(
                width,
                aligned_run(load, (inner,), every),
                _VECTOR_BYTES * 8 // vector_bits(str(load.source.dtype)),
            )
    return width & -width


def _as(value: Any, dtype: str) -> Any:
    return value if nest.dtype_of(value) == dtype else tirx.Cast(dtype, value)
