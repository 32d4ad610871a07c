"""Dense convolutions of float32 by Intel's tile registers: products of pixels by weights (``matmul.tiles``).

A row of the product is an output pixel, a panel two blocks of output channels, and a step of its depth two
blocks of input channels at a tap::

    rows       image, row, column
    panel      two blocks of output channels
    step       pair of input blocks, tap row, tap column

Each task splits the pixels of its rows once for every tap, so few output channels do not repay it. A border
is computed where a pixel is read, and never copied.

Edges: see ``matmul.tiles``. If the number of output blocks is odd, one is computed twice; if that of input
blocks is, zeros fill the last step. A convolution in front of a depthwise one or a pool is a chain, and left
to vectors.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from worker.compiler.schedules import nest, tiles
from worker.compiler.schedules.annotations import CONVOLUTION, FACTORS, GROUP_BLOCKS
from worker.compiler.schedules.blocks import (
    Block,
    are_axes,
    is_epilogue,
    name_of_family,
    read_blocks,
    split_place,
    store_result,
)
from worker.compiler.schedules.families.matmul.plan import MatmulShape
from worker.compiler.schedules.families.matmul.tile_plan import EXACT, PANEL, PARTS, AmxPlan, cycles_if_faster
from worker.compiler.schedules.families.matmul.tiles import Operands, by_tiles, or_zero
from worker.compiler.schedules.processors import Machine

_PAIR = tiles.STEPS // tiles.ROWS
"""Blocks of input channels of a step, and of output channels of a panel."""


def product_shape(rows: int, taps: int, input_blocks: int, output_blocks: int) -> MatmulShape:
    """The sizes of a convolution's product.

    Args:
        rows: output pixels.
        taps: multiply-adds of an output with the channels of one input block.
        input_blocks: blocks of input channels.
        output_blocks: blocks of output channels.
    """
    pairs = ceil(input_blocks / _PAIR)
    return MatmulShape(rows=rows, depth=taps * _PAIR * pairs, columns=output_blocks * tiles.ROWS, bits=32)


class TiledConvolution:
    """A convolution that tile registers compute.

    Attributes:
        shape: the sizes of its product.
        parts: those of each number.
    """

    def __init__(self, main: Block, border: Block | None, epilogue: Block | None) -> None:
        self._main, self._border, self._epilogue = main, border, epilogue
        self._batch, self._block, self._row, self._column, self._lane = main.spatial
        self._channel, *self._taps, self._input = main.reduced
        self._image, self._weights = _factors(main)
        self.parts = PARTS.get(str(main.body.annotations.get(FACTORS)), EXACT)
        self.shape = product_shape(
            rows=prod(axis.extent for axis in self._pixels),
            taps=prod(axis.extent for axis in (*self._taps, self._input)),
            input_blocks=self._channel.extent,
            output_blocks=self._block.extent,
        )

    @property
    def _pairs(self) -> int:
        """Pairs of blocks of input channels."""
        return ceil(self._channel.extent / _PAIR)

    @property
    def _pixels(self) -> tuple[Any, ...]:
        return (self._batch, self._row, self._column)

    def operands(self) -> Operands:
        """What the loops read and write."""
        return Operands(
            rows=self.shape.rows,
            panels=ceil(self._block.extent / _PAIR),
            steps=self.shape.depth // tiles.STEPS,
            index=nest.dtype_of(self._lane.var),
            left=self._left,
            right=self._right,
            result=self._result,
            rows_inside=True,
        )

    def _left(self, row: Any, step: Any, half: Any, lane: Any) -> Any:
        reduced = self._reduced(step, half, lane)
        value = nest.substitute(self._read, {**split_place(row, self._pixels), **reduced})
        return or_zero(reduced[self._channel.var], self._channel.extent, value)

    @property
    def _read(self) -> Any:
        """A pixel of the image, or of the border around it."""
        if self._border is None:
            return self._image
        border, stored = self._border, self._border.body.body

        def value(indices: Any) -> Any:
            own = {axis.var: index for axis, index in zip(border.axes, indices, strict=True)}
            return nest.substitute(stored.value, own)

        return nest.replace_loads(self._image, stored.buffer, value)

    def _right(self, panel: Any, step: Any, place: Any, vector: Any, lane: Any) -> Any:
        reduced = self._reduced(step, place // tiles.ROWS, place % tiles.ROWS)
        block = self._block_of(panel, vector)
        value = nest.substitute(self._weights, {self._block.var: block, self._lane.var: lane, **reduced})
        return or_zero(reduced[self._channel.var], self._channel.extent, value)

    def _reduced(self, step: Any, half: Any, lane: Any) -> dict[Any, Any]:
        """The places of the reduced axes."""
        channel = replace(self._channel, extent=self._pairs, size=self._pairs)
        taps = split_place(step, (channel, *self._taps))
        pair = taps.pop(self._channel.var)
        return {**taps, self._channel.var: pair * _PAIR + half, self._input.var: lane}

    def _block_of(self, panel: Any, vector: Any) -> Any:
        last = tirx.IntImm(nest.dtype_of(self._block.var), self._block.extent - _PAIR)
        return tirx.Min(panel * _PAIR, last) + vector

    def _result(self, value: Any, row: Any, panel: Any, vector: Any, lane: Any) -> tirx.Stmt:
        block = self._block_of(panel, vector)
        places = {**split_place(row, self._pixels), self._block.var: block, self._lane.var: lane}
        return store_result(self._main, self._epilogue, places, value)


def find_tiled(schedule: s_tir.Schedule, machine: Machine, vector_cycles: float) -> TiledConvolution | None:
    """The convolution of a function, if tile registers compute it in fewer cycles than vectors."""
    found = _read_convolution(schedule)
    if found is None or found.shape.rows < PANEL:
        return None
    cycles = cycles_if_faster(found.shape, machine, vector_cycles, found.parts)
    return None if cycles is None else found


def write_tiled(function: tirx.PrimFunc, tiled: TiledConvolution, plan: AmxPlan) -> tirx.PrimFunc:
    """The function by tile registers, or with its own loops where the process may not use them."""
    root = function.body.block
    return nest.with_loops(function, by_tiles(tiled.operands(), plan, root.body), root.alloc_buffers)


def _read_convolution(schedule: s_tir.Schedule) -> TiledConvolution | None:
    """A dense convolution of whole blocks of float32; None for other functions."""
    blocks = {str(block.body.name_hint): block for block in read_blocks(schedule)}
    if not all(isinstance(block.body.body, tirx.BufferStore) for block in blocks.values()):
        return None
    name = name_of_family(schedule, CONVOLUTION)
    main = blocks.pop(name, None) if name is not None else None
    if main is None or len(main.spatial) != 5 or len(main.reduced) < 3 or not _is_dense(main):
        return None
    image, _ = _factors(main)
    border = next((one for one in blocks.values() if one.body.body.buffer.same_as(image.source)), None)
    others = [one for one in blocks.values() if one is not border]
    if len(others) > 1:
        return None
    epilogue = others[0] if others else None
    if epilogue is not None and not is_epilogue(epilogue, main):
        return None
    return TiledConvolution(main, border, epilogue)


def _is_dense(main: Block) -> bool:
    """Whether all outputs read all inputs, in blocks of sixteen."""
    total = main.body.body.value
    if not isinstance(total, tirx.Add) or not isinstance(total.b, tirx.Mul):
        return False
    image, weight = _factors(main)
    dtypes = {nest.dtype_of(image), nest.dtype_of(weight), str(main.body.body.buffer.dtype)}
    block, lane = main.spatial[1], main.spatial[4]
    inputs = main.reduced[-1]
    return (
        dtypes == {"float32"}
        and isinstance(image, TensorLoad)
        and isinstance(weight.value if isinstance(weight, tirx.Cast) else weight, TensorLoad)
        and int(main.body.annotations.get(GROUP_BLOCKS, 0)) == block.extent
        and block.extent >= _PAIR
        and lane.extent == inputs.extent == tiles.ROWS
        and image.indices[-1].same_as(inputs.var)
        and are_axes(main.body.body.indices, main.spatial)
    )


def _factors(main: Block) -> tuple[Any, Any]:
    """The pixel and the weight of a convolution's block."""
    product = main.body.body.value.b
    return product.a, product.b
