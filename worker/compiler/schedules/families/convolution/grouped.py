"""Convolutions of groups of few channels, several in a vector, of sequences and images in blocks::

    for parallel task in (image, bundle, band of rows):
        pixels[rows, columns, inputs, groups] = band's input with its border        # shuffled
        for row in band, tile of columns:
            for part of the bundle's vectors:
                sums[columns, vectors, lanes] = 0
                for tap row, input:
                    for pixel of the row:                                           # unrolled
                        spread = pixels[pixel, input, groups], repeated over the lanes
                        for tap column, vector:
                            sums[column, vector] += spread * weights[vector, lanes]
                kept[columns, vectors] = sums
            for column, block:
                output[block, column, lanes] = epilogue(kept, shuffled)

A bundle is the fewest groups that fill whole blocks of channels (``bundles``). A vector holds some outputs
of each of its groups, the groups next to each other, so its factors are as many adjacent pixels, repeated: a
load that broadcasts 32, 64, 128 or 256 bits. No multiplication is by a padded zero.

Registers hold the sums, the weights of a row of taps of one input, and one spread pixel. L1 or L2 holds a
band's pixels. Outputs of a bundle of one group are not shuffled, so parts are outside of rows and keep their
weights in the cache.

Edges: the last tile of a row and the last band move back over their neighbors. The border is part of the
pixels, so the window has no branch. The last bundle may have fewer groups than the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import BUNDLE, DILATION, GROUPED, PADDING, STEPS
from worker.compiler.schedules.blocks import (
    block_names,
    is_expensive,
    name_of_family,
    read_block,
    result_at,
)
from worker.compiler.schedules.families.convolution.bundles import Bundle
from worker.compiler.schedules.families.convolution.grouped_plan import (
    GroupedPlan,
    GroupedShape,
    grouped_plans,
)
from worker.compiler.schedules.families.convolution.windows import ConvolutionParts
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, threads_pay
from worker.compiler.schedules.reduction import find_epilogue, last_block


def write_grouped(schedule: s_tir.Schedule, machine: Machine, choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it is not a convolution of bundles."""
    trial = schedule.copy()
    parts = _find(trial)
    if parts is None:
        return None
    plan = choose(grouped_plans(parts.shape, machine), parts.shape)
    parallel = threads_pay(machine.threads, parts.shape.work, MULTIPLY_ADDS_PER_THREAD)
    return nest.with_loops(trial.mod["main"], _Writer(parts, plan, parallel).loops())


def _find(schedule: s_tir.Schedule) -> ConvolutionParts[GroupedShape] | None:
    names = block_names(schedule)
    annotated = name_of_family(schedule, GROUPED)
    main = None if annotated is None else read_block(schedule, schedule.get_sblock(annotated))
    if main is None:
        return None
    epilogue, producers = find_epilogue(schedule, main), schedule.get_producers(main.handle)
    if len(producers) != 1 or len(names) != (3 if epilogue else 2):
        return None
    image = schedule.get(producers[0]).reads[0].source
    weights = main.body.reads[1].source
    last = last_block(schedule, main.handle, epilogue)
    main, written = (read_block(schedule, handle) for handle in (main.handle, last))
    if main is None or written is None:
        return None
    batch, outputs, rows, columns, lanes = (axis.extent for axis in main.spatial)
    noted = main.body.annotations
    groups, of_inputs, of_outputs = map(int, noted[BUNDLE])
    shape = GroupedShape(
        bundle=Bundle(groups, of_inputs, of_outputs, lanes),
        batch=batch,
        outputs=outputs,
        bundles=int(weights.shape[0]),
        rows=rows,
        columns=columns,
        taps=(int(weights.shape[2]), int(weights.shape[4])),
        steps=_pair(noted[STEPS]),
        dilation=_pair(noted[DILATION]),
    )
    return ConvolutionParts(image, weights, main, written, _pair(noted[PADDING]), shape)


def _pair(numbers: Sequence[Any]) -> tuple[int, int]:
    rows, columns = map(int, numbers)
    return rows, columns


@dataclass(frozen=True)
class _Place:
    """The image and the bundle of a task, and the first row of its band."""

    batch: Any
    bundle: Any
    row: Any


@dataclass(frozen=True)
class _Writer:
    """Writes the loops of one convolution."""

    parts: ConvolutionParts[GroupedShape]
    plan: GroupedPlan
    parallel: bool

    @property
    def _shape(self) -> GroupedShape:
        return self.parts.shape

    @property
    def _bundle(self) -> Bundle:
        return self._shape.bundle

    @property
    def _dtype(self) -> str:
        return str(self.parts.image.dtype)

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.parts.main.spatial[0].var)

    def _number(self, value: int) -> Any:
        return nest.constant(value, self._index)

    def _line(self, first: Any, lanes: int | None = None) -> Any:
        """The indices of a vector."""
        return tirx.Ramp(first, self._number(1), lanes or self._bundle.lanes)

    def loops(self) -> tirx.Stmt:
        """All loops."""
        shape, plan = self._shape, self.plan
        bands = ceil(shape.rows / plan.band)
        height, width = shape.reach(plan.band)
        pixels = nest.workspace(
            (height, width, self._bundle.inputs * self._bundle.groups), self._dtype, "pixels"
        )

        def task(index: Any) -> tirx.Stmt:
            places = (
                (index // (bands * shape.bundles), "batch"),
                (index // bands % shape.bundles, "bundle"),
                (nest.clamped(index % bands, plan.band, shape.rows), "row"),
            )
            return nest.all_named(places, lambda *place: of_band(_Place(*place)))

        def of_band(place: _Place) -> tirx.Stmt:
            return nest.sequence(
                nest.declare(pixels),
                nest.serial(height, lambda y: self._copy_row(pixels, place, y), self._index),
                self._each_tile(pixels, place),
            )

        count = self.parts.main.spatial[0].size * shape.bundles * bands
        return nest.tasks(count, task, self._index, parallel=self.parallel)

    def _copy_row(self, pixels: Any, place: _Place, y: Any) -> tirx.Stmt:
        """Copy a row of the band's input, with zeros where it leaves the image."""
        shape = self._shape
        rows, columns = (int(size) for size in self.parts.image.shape[2:4])
        (top, left), (_, width) = self.parts.before, shape.reach(1)
        inside = max(0, min(columns, width - left))

        def clear(first: int, size: int) -> tirx.Stmt:
            def clear_pixel(x: Any) -> tirx.Stmt:
                return nest.sequence(
                    *(
                        self._store(
                            pixels, tirx.Broadcast(self._zero(), self._bundle.lanes), y, first + x, block
                        )
                        for block in range(self._bundle.input_blocks)
                    )
                )

            return nest.serial(size, clear_pixel, self._index)

        def copy(row: Any) -> tirx.Stmt:
            def copy_pixel(x: Any) -> tirx.Stmt:
                return self._copy_pixel(pixels, place, (row, x), (y, left + x))

            around = [clear(0, min(left, width)), clear(left + inside, width - left - inside)]
            sizes = (min(left, width), width - left - inside)
            edges = [edge for edge, size in zip(around, sizes, strict=True) if size > 0]
            return nest.sequence(*edges, *([nest.serial(inside, copy_pixel, self._index)] if inside else []))

        def of_row(row: Any) -> tirx.Stmt:
            if top == 0 and shape.reach(shape.rows)[0] <= rows:
                return copy(row)
            return nest.either(tirx.all(row >= 0, row < rows), copy(row), clear(0, width))

        return nest.named(place.row * shape.steps[0] + y - top, "source", of_row)

    def _copy_pixel(
        self, pixels: Any, place: _Place, source: tuple[Any, Any], target: tuple[Any, Any]
    ) -> tirx.Stmt:
        """Copy a pixel of all channels of a bundle, in another order."""
        bundle = self._bundle
        vectors = [
            self._input(place, place.bundle * bundle.input_blocks + block, source)
            for block in range(bundle.input_blocks)
        ]
        if bundle.groups == 1:
            return nest.sequence(
                *(self._store(pixels, vector, *target, block) for block, vector in enumerate(vectors))
            )
        names = [tirx.Var("v", f"{self._dtype}x{bundle.lanes}") for _ in vectors]
        statements = [tirx.Bind(name, vector) for name, vector in zip(names, vectors, strict=True)]
        for block in range(bundle.input_blocks):
            wanted = [bundle.input_of(block * bundle.lanes + lane) for lane in range(bundle.lanes)]
            statements.append(self._store(pixels, self._gathered(names, wanted), *target, block))
        return nest.sequence(*statements)

    def _input(self, place: _Place, block: Any, source: tuple[Any, Any]) -> Any:
        """A vector of the image; zeros beyond its last block, which the last bundle may reach."""
        image, bundle = self.parts.image, self._bundle
        blocks = int(image.shape[1])
        line = self._line(self._number(0))
        if self._shape.bundles * bundle.input_blocks == blocks:
            return image[(place.batch, block, *source, line)]
        vector = image[(place.batch, tirx.min(block, self._number(blocks - 1)), *source, line)]
        return tirx.Select(block < blocks, vector, tirx.Broadcast(self._zero(), bundle.lanes))

    def _gathered(self, vectors: Sequence[Any], elements: Sequence[int]) -> Any:
        """A vector of elements of some vectors."""
        lanes = self._bundle.lanes
        used = sorted({element // lanes for element in elements})
        among = [used.index(element // lanes) * lanes + element % lanes for element in elements]
        return tirx.Shuffle(
            [vectors[number] for number in used], [tirx.IntImm("int32", lane) for lane in among]
        )

    def _zero(self) -> Any:
        return nest.constant(0, self._dtype)

    def _store(self, buffer: Any, value: Any, *place: Any) -> tirx.Stmt:
        """Store a vector; the last number of a place counts vectors."""
        *outer, vector = place
        return nest.store(buffer, value, *outer, self._line(self._number(vector * self._bundle.lanes)))

    def _each_tile(self, pixels: Any, place: _Place) -> tirx.Stmt:
        """All tiles of a band; parts of a bundle's vectors are outside unless its outputs are shuffled."""
        shape, plan, bundle = self._shape, self.plan, self._bundle
        parts = bundle.vectors // plan.vectors

        def of_part(first: Any, body: Callable[[Any, Any, Any], tirx.Stmt]) -> tirx.Stmt:
            def of_row(row: Any) -> tirx.Stmt:
                def of_tile(number: Any) -> tirx.Stmt:
                    start = nest.clamped(number, plan.columns, shape.columns)
                    return nest.named(start, "column", lambda column: body(first, row, column))

                return nest.serial(ceil(shape.columns / plan.columns), of_tile, self._index)

            return nest.serial(plan.band, of_row, self._index)

        def alone(first: Any, row: Any, column: Any) -> tirx.Stmt:
            kept = self._kept(plan.vectors)
            return nest.sequence(
                nest.declare(kept),
                self._sum_up(pixels, kept, place, (row, column), (first, self._number(0))),
                self._finish(kept, place, (row, column), first),
            )

        def together(_first: Any, row: Any, column: Any) -> tirx.Stmt:
            kept = self._kept(bundle.vectors)

            def part(number: Any) -> tirx.Stmt:
                first = number * plan.vectors
                return self._sum_up(pixels, kept, place, (row, column), (first, first))

            return nest.sequence(
                nest.declare(kept),
                nest.serial(parts, part, self._index),
                self._finish(kept, place, (row, column), self._number(0)),
            )

        if parts == 1 or bundle.groups > 1:
            return of_part(self._number(0), alone if parts == 1 else together)
        return nest.serial(parts, lambda number: of_part(number * plan.vectors, alone), self._index)

    def _kept(self, vectors: int) -> Any:
        """A buffer for the sums of a tile: registers if they are finished right away."""
        stays = vectors == self.plan.vectors and not is_expensive(self.parts.last.body)
        shape = (self.plan.columns, vectors, self._bundle.lanes)
        return (nest.registers if stays else nest.workspace)(shape, self._dtype, "kept")

    def _sum_up(
        self, pixels: Any, kept: Any, place: _Place, at: tuple[Any, Any], starts: tuple[Any, Any]
    ) -> tirx.Stmt:
        """The sums of a tile of columns and a part of the bundle's vectors.

        ``starts`` are its first vector in the bundle and in ``kept``.
        """
        first, first_kept = starts
        shape, plan, lanes = self._shape, self.plan, self._bundle.lanes
        down, across = shape.taps
        row, column = at[0] * shape.steps[0], at[1] * shape.steps[1]
        sums = nest.registers((plan.columns, plan.vectors, lanes), self._dtype, "sums")

        def each(statement: Callable[[int, int], tirx.Stmt]) -> tirx.Stmt:
            return nest.sequence(
                *(statement(x, vector) for x in range(plan.columns) for vector in range(plan.vectors))
            )

        def step(tap_row: Any, number: Any, tap_column: Any) -> tirx.Stmt:
            source = (row + tap_row * shape.dilation[0], column + tap_column * shape.dilation[1])

            def weight(vector: int, tap: int) -> Any:
                at = (place.bundle, first + vector, tap_row, number, tap_column + tap)
                return self.parts.weights[(*at, self._line(self._number(0)))]

            return self._add_products(sums, lambda at: self._spread(pixels, at, number), weight, source)

        def steps(tap_row: Any) -> tirx.Stmt:
            def of_input(number: Any) -> tirx.Stmt:
                return nest.serial(
                    across // plan.taps,
                    lambda tap: step(tap_row, number, tap * plan.taps),
                    self._index,
                )

            return nest.serial(self._bundle.inputs, of_input, self._index)

        zeros = tirx.Broadcast(self._zero(), lanes)
        return nest.sequence(
            nest.declare(sums),
            each(lambda x, vector: self._store(sums, zeros, x, vector, 0)),
            nest.serial(down, steps, self._index),
            each(
                lambda x, vector: self._store(
                    kept, sums[x, vector, self._line(self._number(0))], x, first_kept + vector, 0
                )
            ),
        )

    def _add_products(
        self,
        sums: Any,
        spread_at: Callable[[tuple[Any, Any]], Any],
        weight: Callable[[int, int], Any],
        source: tuple[Any, Any],
    ) -> tirx.Stmt:
        """Add the products of one input under a row of taps, whose first pixel is ``source``."""
        row, column = source
        statements: list[tirx.Stmt] = []
        for offset, uses in self._uses().items():
            spread = tirx.Var("spread", f"{self._dtype}x{self._bundle.lanes}")
            statements.append(tirx.Bind(spread, spread_at((row, column + offset))))
            for (x, tap), vector in product(uses, range(self.plan.vectors)):
                total = sums[x, vector, self._line(self._number(0))]
                added = total + spread * weight(vector, tap)
                statements.append(self._store(sums, added, x, self._number(vector), 0))
        return nest.sequence(*statements)

    def _uses(self) -> dict[int, list[tuple[int, int]]]:
        """The pixels of a tile's row of taps, each with the columns and the taps that read it."""
        uses: dict[int, list[tuple[int, int]]] = {}
        for x in range(self.plan.columns):
            for tap in range(self.plan.taps):
                offset = x * self._shape.steps[1] + tap * self._shape.dilation[1]
                uses.setdefault(offset, []).append((x, tap))
        return dict(sorted(uses.items()))

    def _spread(self, pixels: Any, source: tuple[Any, Any], number: Any) -> Any:
        """The pixels of one input of each group, repeated over the lanes."""
        groups, lanes = self._bundle.groups, self._bundle.lanes
        if groups == 1:
            return tirx.Broadcast(pixels[(*source, number)], lanes)
        loaded = pixels[(*source, self._line(number * groups, groups))]
        if groups == lanes:
            return loaded
        lanes_of = [tirx.IntImm("int32", lane) for lane in range(lanes)]
        return tirx.Shuffle([loaded] * (lanes // groups), lanes_of)

    def _finish(self, kept: Any, place: _Place, at: tuple[Any, Any], first: Any) -> tirx.Stmt:
        """Apply the epilogue to a tile and store it block by block, starting with block ``first``."""
        count = int(kept.shape[1])

        def finish_column(x: Any) -> tirx.Stmt:
            return nest.sequence(
                *(self._finish_block(kept, place, (*at, x), (first, block)) for block in range(count))
            )

        if is_expensive(self.parts.last.body) or count > self.plan.vectors:
            return nest.serial(self.plan.columns, finish_column, self._index)
        return nest.sequence(*(finish_column(self._number(x)) for x in range(self.plan.columns)))

    def _finish_block(
        self, kept: Any, place: _Place, at: tuple[Any, Any, Any], number: tuple[Any, int]
    ) -> tirx.Stmt:
        bundle, (first, block) = self._bundle, number
        row, column, x = at
        line = self._line(self._number(0))
        vectors = [kept[x, self._number(vector), line] for vector in range(int(kept.shape[1]))]
        wanted = [bundle.place_of(block * bundle.lanes + lane) for lane in range(bundle.lanes)]
        ordered = nest.registers((bundle.lanes,), self._dtype, "ordered")
        result = vectors[block] if bundle.groups == 1 else self._gathered(vectors, wanted)

        output = place.bundle * bundle.vectors + first + block

        def element(lane: Any) -> tirx.Stmt:
            indices = (place.batch, output, place.row + row, column + x, lane)
            return result_at(self.parts.main, self.parts.last, indices, ordered[lane])

        stored = nest.sequence(
            nest.declare(ordered),
            nest.store(ordered, result, line),
            nest.vectorized(bundle.lanes, element, self._index),
        )
        if self._shape.bundles * bundle.vectors == self._shape.outputs:
            return stored
        return tirx.IfThenElse(output < self._shape.outputs, stored, None)
