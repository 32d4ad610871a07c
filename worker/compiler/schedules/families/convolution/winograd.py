"""Convolutions of 3 x 3 taps, or 3 of a sequence, and stride 1 by Winograd's algorithm, in blocks.

An output's tile of ``m x m`` pixels takes ``(m + 2)^2`` products for each pair of channels instead of ``9 *
m^2``: 2.25 times fewer for m = 2, four times fewer for m = 4. A sequence's tile has one row of
``m`` pixels, and takes ``m + 2`` products instead of ``3 * m``, 1.5 and 2 times fewer::

    for parallel task in (part of the groups of output blocks, strip of tiles):
        for input block, tile of strip:
            image[points, input block, tile, lanes] = B^T d B             # d: the tile's pixels
        for group of output blocks in part:
            for point, register tile of tiles:
                sums[tiles, blocks, lanes] = 0
                for input block, input lane:
                    for tile, block:                                      # unrolled
                        sums[tile, block, lanes] += image[point, tile] * weights[point, block, lanes]
                products[point, tiles, blocks, lanes] = sums
            for tile of strip, block:
                output[m * m pixels, lanes] = epilogue(A^T products A)

A strip goes on in the next row of tiles and the next image. L2 holds its transformed pixels and the products
of one group, whose weights are read once for each strip, in the order in which they are packed. If there are
few tiles, or many weights, parts give threads work: each transforms all pixels, and reads its share of the
weights. The register tiles of a point prefetch the weights of the next point if they come from memory. If the
image comes from beyond L2, those of the last group prefetch the pixels of the next strip: each point one
pixel of every tile.

Registers hold the sums, the weights of one channel and one broadcast number of the image. The transforms
compute on whole vectors (``winograd_transforms``).

Edges: a tile that reaches beyond the image is first copied to a patch of zeros, and a tile that reaches
beyond the output stores only the pixels that exist, in loops. The last strip moves back over its neighbor, as
does the last register tile of a strip.

An infinity or NaN in a tile makes its outputs NaN, also those whose window does not contain it.

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import PADDING, SIDE, WINOGRAD
from worker.compiler.schedules.blocks import (
    block_names,
    is_expensive,
    name_of_family,
    read_block,
    result_at,
)
from worker.compiler.schedules.families.convolution.prefetch import prefetches_weights
from worker.compiler.schedules.families.convolution.windows import ConvolutionParts
from worker.compiler.schedules.families.convolution.winograd_plan import (
    BYTES,
    WinogradPlan,
    WinogradShape,
    winograd_plans,
)
from worker.compiler.schedules.families.convolution.winograd_points import Matrix, transforms
from worker.compiler.schedules.families.convolution.winograd_transforms import (
    Place,
    Vector,
    Vectors,
    loaded,
    transformed,
)
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import CACHE_LINE, MULTIPLY_ADDS_PER_THREAD, Machine, threads_pay
from worker.compiler.schedules.reduction import find_epilogue, last_block


def write_winograd(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it is not a convolution by Winograd's algorithm."""
    trial = schedule.copy()
    parts = _find(trial)
    if parts is None:
        return None
    plan = choose(winograd_plans(parts.shape, machine), parts.shape)
    shape = parts.shape
    work = shape.points * shape.tiles * shape.inputs * shape.lanes * shape.outputs
    parallel = threads_pay(machine.threads, work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(trial.mod["main"], _Writer(parts, plan, machine, parallel).loops())


def _find(schedule: s_tir.Schedule) -> ConvolutionParts[WinogradShape] | None:
    names = block_names(schedule)
    annotated = name_of_family(schedule, WINOGRAD)
    main = None if annotated is None else read_block(schedule, schedule.get_sblock(annotated))
    if main is None:
        return None
    epilogue = find_epilogue(schedule, main)
    products = schedule.get_producers(main.handle)
    images = [each for product in products for each in schedule.get_producers(product)]
    if len(products) != 1 or len(images) != 1 or len(names) != (4 if epilogue else 3):
        return None
    image = schedule.get(images[0]).reads[0].source
    weights = schedule.get(products[0]).reads[1].source
    last = last_block(schedule, main.handle, epilogue)
    main, written = (read_block(schedule, handle) for handle in (main.handle, last))
    if main is None or written is None:
        return None
    batch, outputs, rows, columns, lanes = (axis.extent for axis in main.spatial)
    before = tuple(int(number) for number in main.body.annotations[PADDING])
    shape = WinogradShape(
        side=int(main.body.annotations[SIDE]),
        batch=batch,
        inputs=int(image.shape[1]),
        outputs=outputs,
        rows=rows,
        columns=columns,
        blocks=int(weights.shape[3]) // lanes,
        lanes=lanes,
        dimensions=len(before),
    )
    top, left = (0, *before)[-2:]
    return ConvolutionParts(image, weights, main, written, (top, left), shape)


@dataclass(frozen=True)
class _Tile:
    """A tile: its place in the strip, its image, its first row and column of the output."""

    place: Any
    batch: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class _Buffers:
    """What a task computes for its strip.

    Attributes:
        image: ``[point, input block, tile, lane]``: the transformed pixels.
        products: ``[point, tile, block, lane]``: the products of a group of output blocks.
        following: ``[tile]``: where the pixels of the next strip's tiles begin, in blocks of lanes, if they
            are prefetched.
    """

    image: Any
    products: Any
    following: Any | None


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one convolution."""

    parts: ConvolutionParts[WinogradShape]
    plan: WinogradPlan
    machine: Machine
    parallel: bool

    @property
    def _shape(self) -> WinogradShape:
        return self.parts.shape

    @property
    def _vectors(self) -> Vectors:
        index = nest.dtype_of(self.parts.main.spatial[0].var)
        return Vectors(self._shape.lanes, str(self.parts.image.dtype), index)

    @property
    def _index(self) -> str:
        return self._vectors.index

    def _workspace(self, name: str, *shape: int) -> Any:
        return nest.workspace((*shape, self._shape.lanes), self._vectors.dtype, name)

    def _small(self, name: str, *shape: int) -> Any:
        """A buffer that lies on the stack, or in registers if only constants index it."""
        return nest.registers((*shape, self._shape.lanes), self._vectors.dtype, name)

    def loops(self) -> tirx.Stmt:
        """All loops."""
        shape, plan = self._shape, self.plan
        strips, groups = ceil(shape.tiles / plan.strip), shape.groups // plan.parts
        buffers = _Buffers(
            image=self._workspace("image", shape.points, shape.inputs, plan.strip),
            products=self._workspace("products", shape.points, plan.strip, shape.blocks),
            following=nest.workspace((plan.strip,), self._index, "following") if self._is_far else None,
        )

        def first_of(index: Any) -> Any:
            return nest.clamped(index % strips, plan.strip, shape.tiles)

        def task(index: Any) -> tirx.Stmt:
            return nest.named(first_of(index), "first", lambda first: of_strip(first, index))

        def of_strip(first: Any, index: Any) -> tirx.Stmt:
            def of_group(number: Any) -> tirx.Stmt:
                group = index // strips * groups + number
                return nest.sequence(
                    self._multiply(buffers, group, number == groups - 1),
                    self._each_tile(first, lambda tile: self._finish(buffers.products, group, tile)),
                )

            return nest.sequence(
                *(nest.declare(buffer) for buffer in vars(buffers).values() if buffer is not None),
                *self._find_following(buffers, first_of(index + 1)),
                self._each_tile(first, lambda tile: self._transform(buffers.image, tile)),
                nest.serial(groups, of_group, self._index),
            )

        return nest.tasks(strips * plan.parts, task, self._index, parallel=self.parallel)

    @property
    def _is_far(self) -> bool:
        """Whether the image comes from beyond L2, so that the pixels of the next strip are prefetched."""
        return prod(map(int, self.parts.image.shape)) * BYTES > self.machine.l2_bytes

    def _find_following(self, buffers: _Buffers, first: Any) -> list[tirx.Stmt]:
        """Note where the pixels of the next strip's tiles begin, in blocks of lanes."""
        following, (top, left) = buffers.following, self.parts.before
        if following is None:
            return []
        blocks, height, width = (int(size) for size in self.parts.image.shape[1:4])

        def note(tile: _Tile) -> tirx.Stmt:
            row = tile.batch * (blocks * height) + tile.row - top
            return nest.store(following, row * width + tile.column - left, tile.place)

        return [self._each_tile(first, note)]

    def _each_tile(self, first: Any, body: Callable[[_Tile], tirx.Stmt]) -> tirx.Stmt:
        """A statement for each tile of a strip."""
        rows, columns = self._shape.sides
        height, width = self._shape.tile

        def of_tile(t: Any) -> tirx.Stmt:
            number = first + t
            places = (
                (number // (rows * columns), "batch"),
                (number // columns % rows * height, "row"),
                (number % columns * width, "column"),
            )
            return nest.all_named(places, lambda *place: body(_Tile(t, *place)))

        return nest.serial(self.plan.strip, of_tile, self._index)

    def _transform(self, image: Any, tile: _Tile) -> tirx.Stmt:
        """Transform the pixels of a tile, of all input blocks."""
        shape, source = self._shape, self.parts.image
        height, width = (int(size) for size in source.shape[2:4])
        top, left = self.parts.before

        def at(y: Any, x: Any) -> tirx.Stmt:
            def of_image(c: Any) -> tirx.Stmt:
                return self._transform_pixels(
                    lambda i, j: loaded((source, (tile.batch, c, y + i, x + j))), image, c, tile
                )

            def of_patch(c: Any) -> tirx.Stmt:
                patch = self._small("patch", *shape.reach)
                return nest.sequence(
                    nest.declare(patch),
                    self._copy_patch(patch, (tile.batch, c), (y, x)),
                    self._transform_pixels(lambda i, j: loaded((patch, (i, j))), image, c, tile),
                )

            return nest.either(
                tirx.all(y >= 0, x >= 0, y <= height - shape.reach[0], x <= width - shape.reach[1]),
                nest.serial(shape.inputs, of_image, self._index),
                nest.serial(shape.inputs, of_patch, self._index),
            )

        return nest.all_named(((tile.row - top, "y"), (tile.column - left, "x")), at)

    def _transform_pixels(
        self, pixel: Callable[[int, Any], Vector], image: Any, c: Any, tile: _Tile
    ) -> tirx.Stmt:
        def result(i: Any, j: int) -> Place:
            return image, (i * self._shape.reach[1] + j, c, tile.place)

        return transformed(self._matrices("image"), pixel, result, self._vectors)

    def _matrices(self, name: str) -> tuple[Matrix, Matrix]:
        """The matrices for the rows and for the columns."""
        down, across = (getattr(transforms(side), name) for side in self._shape.tile)
        return down, across

    def _copy_patch(self, patch: Any, outer: tuple[Any, Any], origin: tuple[Any, Any]) -> tirx.Stmt:
        """Copy the pixels of a tile that exist; the others are zeros."""
        reach, vectors, source = self._shape.reach, self._vectors, self.parts.image
        starts = [tirx.max(0, place * -1) for place in origin]
        sizes = [
            tirx.min(side, int(size) - place) - start
            for side, place, start, size in zip(reach, origin, starts, source.shape[2:4], strict=True)
        ]

        def clear(i: Any, j: Any) -> tirx.Stmt:
            return vectors.store((patch, (i, j)), lambda _: nest.constant(0, vectors.dtype))

        def copy(i: Any, j: Any) -> tirx.Stmt:
            y, x = starts[0] + i, starts[1] + j
            return vectors.store((patch, (y, x)), loaded((source, (*outer, origin[0] + y, origin[1] + x))))

        return nest.sequence(self._square(reach, clear), self._square((sizes[0], sizes[1]), copy))

    def _square(self, sizes: tuple[Any, Any], body: Callable[[Any, Any], tirx.Stmt]) -> tirx.Stmt:
        """Two nested loops."""
        rows, columns = sizes
        return nest.serial(
            rows, lambda i: nest.serial(columns, lambda j: body(i, j), self._index), self._index
        )

    def _multiply(self, buffers: _Buffers, group: Any, is_last: Any) -> tirx.Stmt:
        """The products of a group of output blocks and all tiles of a strip, point by point.

        The last group prefetches the pixels of the next strip: earlier ones would not stay in L2.
        """
        register_tiles = ceil(self.plan.strip / self.plan.tiles)

        def register_tile(point: Any, number: Any) -> tirx.Stmt:
            first = nest.clamped(number, self.plan.tiles, self.plan.strip)

            def prefetches(c: Any) -> list[tirx.Stmt]:
                pixels = self._next_pixels(buffers, (point, c, first))
                return [
                    *self._next_weights((group, point + 1), (number, register_tiles), c),
                    *(tirx.IfThenElse(is_last, each, None) for each in pixels),
                ]

            return self._multiply_tiles(buffers, (group, point), first, prefetches)

        return self._square((self._shape.points, register_tiles), register_tile)

    def _next_pixels(self, buffers: _Buffers, place: tuple[Any, Any, Any]) -> list[tirx.Stmt]:
        """Prefetch a point's pixels of the next strip's tiles, for a register tile and an input block.

        Each point of a transformed tile stands for one of its pixels, which are as many as the points.
        """
        (point, c, first), following, source = place, buffers.following, self.parts.image
        if following is None:
            return []
        width, reach = int(source.shape[3]), self._shape.reach[1]

        def of_tile(t: Any) -> tirx.Stmt:
            column = following[first + t] + point // reach * width + point % reach
            return nest.prefetch(source, 0, c, 0, column, 0, into=nest.FAR)

        return [nest.serial(self.plan.tiles, of_tile, self._index)]

    def _next_weights(self, outer: tuple[Any, Any], visit: tuple[Any, int], c: Any) -> list[tirx.Stmt]:
        """Prefetch a register tile's share of the next point's weights of an input block."""
        shape, weights, (number, visits) = self._shape, self.parts.weights, visit
        if not prefetches_weights(shape.weight_bytes, self.plan.strip, self.machine):
            return []
        share = ceil(shape.lanes / visits)
        return [
            nest.prefetch(weights, *outer, c * shape.lanes + number * share + row, column, into=nest.FAR)
            for row in range(share)
            for column in range(0, shape.blocks * shape.lanes, CACHE_LINE // BYTES)
        ]

    def _multiply_tiles(
        self,
        buffers: _Buffers,
        outer: tuple[Any, Any],
        first: Any,
        prefetches: Callable[[Any], list[tirx.Stmt]],
    ) -> tirx.Stmt:
        """The products of a register tile: sum over the input channels in registers, then store.

        ``prefetches`` are those of an input block.
        """
        shape, vectors, weights = self._shape, self._vectors, self.parts.weights
        image, products = buffers.image, buffers.products
        _, point = outer
        sums = nest.registers((self.plan.tiles, shape.blocks, shape.lanes), vectors.dtype, "sums")

        def each(statement: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
            def of_tile(t: Any) -> tirx.Stmt:
                return nest.unrolled(
                    shape.blocks, lambda b: vectors.each(lambda lane: statement(t, b, lane)), self._index
                )

            return nest.unrolled(self.plan.tiles, of_tile, self._index)

        def step(c: Any, channel: Any) -> tirx.Stmt:
            def add(t: Any, b: Any, lane: Any) -> tirx.Stmt:
                weight = weights[(*outer, c * shape.lanes + channel, b * shape.lanes + lane)]
                pixel = image[point, c, first + t, channel]
                return nest.store(sums, sums[t, b, lane] + pixel * weight, t, b, lane)

            return each(add)

        def of_block(c: Any) -> tirx.Stmt:
            channels = nest.serial(shape.lanes, lambda channel: step(c, channel), self._index)
            return nest.sequence(*prefetches(c), channels)

        return nest.sequence(
            nest.declare(sums),
            each(lambda *at: nest.store(sums, nest.constant(0, vectors.dtype), *at)),
            nest.serial(shape.inputs, of_block, self._index),
            each(lambda t, b, lane: nest.store(products, sums[t, b, lane], point, first + t, b, lane)),
        )

    def _finish(self, products: Any, group: Any, tile: _Tile) -> tirx.Stmt:
        """Transform the products of a tile, apply the epilogue and store, for each block of a group."""
        shape, (height, width) = self._shape, self._shape.tile

        def each_block(is_whole: bool) -> tirx.Stmt:
            return nest.serial(
                shape.blocks, lambda b: self._finish_block(products, (group, b), tile, is_whole), self._index
            )

        if is_expensive(self.parts.last.body):
            return each_block(False)
        if shape.rows % height == shape.columns % width == 0:
            return each_block(True)
        is_inside = tirx.all(tile.row <= shape.rows - height, tile.column <= shape.columns - width)
        return nest.either(is_inside, each_block(True), each_block(False))

    def _finish_block(self, products: Any, block: tuple[Any, Any], tile: _Tile, is_whole: bool) -> tirx.Stmt:
        """The outputs of a block: all, unrolled; or the existing ones, in loops, which bounds the code."""
        shape, (height, width), vectors = self._shape, self._shape.tile, self._vectors
        group, b = block
        kept = self._small("kept", height, width)

        def product(i: int, j: Any) -> Vector:
            return loaded((products, (i * shape.reach[1] + j, tile.place, b)))

        def result(i: Any, j: int) -> Place:
            return kept, (i, vectors.constant(j))

        def pixel(i: Any, j: Any) -> tirx.Stmt:
            place = (tile.batch, group * shape.blocks + b, tile.row + i, tile.column + j)
            return vectors.each(
                lambda lane: result_at(self.parts.main, self.parts.last, (*place, lane), kept[i, j, lane])
            )

        if is_whole:
            places = [(vectors.constant(i), vectors.constant(j)) for i in range(height) for j in range(width)]
            stores = nest.sequence(*(pixel(*place) for place in places))
        else:
            rest = (shape.rows - tile.row, shape.columns - tile.column)
            stores = self._square((tirx.min(height, rest[0]), tirx.min(width, rest[1])), pixel)
        finished = transformed(self._matrices("output"), product, result, vectors)
        return nest.sequence(nest.declare(kept), finished, stores)
