"""Functions that reduce over dimensions before the last: softmax over channels, sums over the first axis.

Claims a function whose blocks share the kept axes and the reduced ones of its first reduction, the last kept
axis lying contiguously in memory wherever it is read or written.

Loop order: tasks (outer kept axes, chunks of the inner ones; in parallel where the work is worth it) → blocks
in their order → reduced axes → the chunk, written out as vectors. A reduction keeps its chunk in registers,
so that an element is read once per block. What a block leaves for the next, such as the exponentials of a
softmax, is a strip of the reduced axes times one chunk, which stays in the first or second cache.

The inner axes are those that follow each other in memory; they count as one. A chunk has as many vectors as
hide the latency of an addition; the last overlaps its neighbor, computing some results twice and equally, so
that every chunk is whole.

Source: the product of a vector and a matrix by rows (axpy form): vectors run across the results, so that
nothing is joined at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import tvm
from tvm import s_tir, tirx

from worker.schedules import nest
from worker.schedules.blocks import Axis, Block, block_names, has_branch, long_axes, read_block
from worker.schedules.families.access import step_along
from worker.schedules.families.product import Places, split_place
from worker.schedules.machine import Machine
from worker.schedules.plans import Chooser
from worker.schedules.spatial import MIN_PARALLEL_WORK

_MAX_VECTORS = 8
_IN_FLIGHT = 4
"""Fewer vectors take as long as these: an addition's result is there four cycles later."""


@dataclass(frozen=True)
class Part:
    """A block with its kept axes and, unless it computes one element per kept place, its reduced ones."""

    block: Block
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]

    @property
    def output(self) -> Any:
        """The buffer that it writes."""
        return self.block.body.writes[0].source

    @property
    def store(self) -> tirx.BufferStore:
        """What it does for one element."""
        return self.block.body.body

    @property
    def keeps_strip(self) -> bool:
        """Whether its result has the reduced axes too."""
        return bool(self.reduced) and not self.block.reduced

    def role(self, index: Any) -> tuple[bool, int] | None:
        """Which axis an index is: whether it is kept, and its number."""
        for is_kept, axes in ((True, self.kept), (False, self.reduced)):
            for number, axis in enumerate(axes):
                if axis.var.same_as(index):
                    return is_kept, number
        return None


def write_columns(schedule: s_tir.Schedule, machine: Machine, _choose: Chooser) -> tirx.PrimFunc | None:
    """The function as loops of this family, or None where it does not reduce over earlier dimensions."""
    parts = find_parts(schedule)
    inner = _count_inner(parts) if parts else 0
    if parts is None or inner == 0:
        return None
    function = schedule.mod["main"]
    return nest.with_loops(function, _Writer.of(parts, inner, machine, set(function.params)).tasks())


def find_parts(schedule: s_tir.Schedule) -> tuple[Part, ...] | None:
    """The blocks with their axes told apart, or None where they do not fit together."""
    blocks = [read_block(schedule, schedule.get_sblock(name)) for name in block_names(schedule)]
    first = next((block for block in blocks if block is not None and block.reduced), None)
    if first is None or not all(block is not None and _is_plain(block) for block in blocks):
        return None
    kept, reduced = _sizes(long_axes(first.spatial)), _sizes(long_axes(first.reduced))
    parts: list[Part] = []
    for block in blocks:
        part = None if block is None else _as_part(block, parts, kept, reduced)
        if part is None or not _reads_own_places(part, parts):
            return None
        parts.append(part)
    return tuple(parts) if kept else None


def chunk_vectors(extent: int, lanes: int, tasks: int, threads: int) -> int:
    """How many vectors a chunk has: the least time over all chunks, and a task for every thread.

    Args:
        extent: elements of the inner axes.
        lanes: elements of a vector, at most ``extent``.
        tasks: iterations of the outer axes.
        threads: threads that share the tasks.

    Returns:
        A number of vectors from 1 to 8.
    """
    choices = [
        count
        for count in range(1, _MAX_VECTORS + 1)
        if count == 1 or (count * lanes <= extent and tasks * ceil(extent / (count * lanes)) >= threads)
    ]

    def time(count: int) -> tuple[int, int]:
        return ceil(extent / (count * lanes)) * max(count, _IN_FLIGHT), -count

    return min(choices, key=time)


def _is_plain(block: Block) -> bool:
    body = block.body.body
    initial = block.body.init is None or isinstance(block.body.init, tirx.BufferStore)
    return (
        isinstance(body, tirx.BufferStore)
        and initial
        and (block.body.init is not None) == bool(block.reduced)
        and not has_branch(block.body)
    )


def _sizes(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    return tuple(axis.extent for axis in axes)


def _as_part(
    block: Block, before: list[Part], kept: tuple[int, ...], reduced: tuple[int, ...]
) -> Part | None:
    own = long_axes(block.spatial)
    if block.reduced:
        part = Part(block, own, long_axes(block.reduced))
        return part if (_sizes(part.kept), _sizes(part.reduced)) == (kept, reduced) else None
    if _sizes(own) == kept:
        return Part(block, own, ())
    named = _kept_axes(block, before)
    rest = tuple(axis for axis in own if axis not in named)
    return Part(block, named, rest) if (_sizes(named), _sizes(rest)) == (kept, reduced) else None


def _kept_axes(block: Block, before: list[Part]) -> tuple[Axis, ...]:
    """The axes by which a block reads an earlier result that has no reduced axes."""
    results = {part.output: part for part in before if not part.keeps_strip}
    for load in nest.loads_of(block.body.body.value):
        if load.source in results:
            own = long_axes(block.axes)
            return tuple(axis for index in load.indices for axis in own if axis.var.same_as(index))
    return ()


def _reads_own_places(part: Part, before: list[Part]) -> bool:
    """Whether a block reads earlier results, and writes its own, only where it stands."""
    written = {earlier.output: earlier for earlier in before}
    wanted = (*part.kept, *(part.reduced if part.keeps_strip else ()))
    places = [index for index in part.store.indices if not isinstance(index, tirx.IntImm)]
    roles = [part.role(index) for index in places if not _is_unit(index, part)]
    if None in roles or len(roles) != len(wanted) or part.output in written:
        return False
    return all(
        _same_place(load, part, written.get(load.source, part))
        for load in nest.loads_of(part.store.value)
        if load.source in written or load.source.same_as(part.output)
    )


def _same_place(load: Any, reader: Part, writer: Part) -> bool:
    return all(
        int(size) == 1 or (reader.role(here) is not None and reader.role(here) == writer.role(there))
        for here, there, size in zip(load.indices, writer.store.indices, writer.output.shape, strict=True)
    )


def _is_unit(index: Any, part: Part) -> bool:
    return any(axis.extent == 1 and axis.var.same_as(index) for axis in part.block.axes)


def _count_inner(parts: tuple[Part, ...]) -> int:
    """How many of the last kept axes follow each other in memory, in every read and write."""
    count = len(parts[0].kept)
    return next((inner for inner in range(count, 0, -1) if all(_is_inner(part, inner) for part in parts)), 0)


def _is_inner(part: Part, inner: int) -> bool:
    return all(_flows(load, part.kept[-inner:]) for load in nest.loads_of(part.store.value)) and _flows(
        tirx.BufferLoad(part.output, part.store.indices), part.kept[-inner:]
    )


def _flows(load: Any, axes: tuple[Axis, ...]) -> bool:
    """Whether a read advances by one element with the axes as one, or by none."""
    steps = [step_along(load, axis) for axis in axes]
    contiguous = [prod(_sizes(axes[number + 1 :])) for number in range(len(axes))]
    return steps == contiguous or not any(step != 0 for step in steps)


@dataclass(frozen=True)
class _Spot:
    """Where a chunk lies: the outer axes' place, and the first inner one."""

    outer: Any
    first: Any


@dataclass(frozen=True)
class _Writer:
    """Writes the loops; ``local`` holds the buffers of one chunk, by those of the function."""

    parts: tuple[Part, ...]
    inner: int
    vectors: int
    lanes: int
    is_parallel: bool
    local: dict[Any, Any]

    @staticmethod
    def of(parts: tuple[Part, ...], inner: int, machine: Machine, results: set[Any]) -> _Writer:
        """Choose the chunk, and make its buffers."""
        extent = prod(_sizes(parts[0].kept[-inner:]))
        bits = max(int(tvm.DataType(str(part.output.dtype)).bits) for part in parts)
        lanes = min(extent, machine.lanes(bits))
        work = sum(part.block.work for part in parts)
        threads = machine.threads if work >= MIN_PARALLEL_WORK else 1
        vectors = chunk_vectors(extent, lanes, prod(_sizes(parts[0].kept[:-inner])), threads)
        local = {part.output: _buffer(part, vectors, lanes) for part in parts if part.output not in results}
        return _Writer(parts, inner, vectors, lanes, threads > 1, local)

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        kept = self.parts[0].kept
        extent, chunk = prod(_sizes(kept[-self.inner :])), self.vectors * self.lanes
        chunks = ceil(extent / chunk)
        last = tirx.IntImm(self._index, extent - chunk)

        def task(number: Any) -> tirx.Stmt:
            spot = _Spot(outer=number // chunks, first=tirx.Min(number % chunks * chunk, last))
            statements = [self._part(part, spot) for part in self.parts]
            return nest.sequence(*map(nest.declare, self.local.values()), *statements)

        loop = nest.parallel if self.is_parallel else nest.serial
        return loop(prod(_sizes(kept[: -self.inner])) * chunks, task, self._index)

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.parts[0].block.axes[0].var)

    def _part(self, part: Part, spot: _Spot) -> tirx.Stmt:
        if not part.block.reduced:
            return self._over(part.reduced, {}, lambda place: self._each(part, spot, place, self._stored))
        sums = nest.registers((self.vectors, self.lanes), str(part.output.dtype), "sums")
        first = part.block.body.init.value

        def clear(_part: Part, _places: Places, _value: Any, at: tuple[Any, Any]) -> tirx.Stmt:
            return nest.store(sums, first, *at)

        def add(part: Part, _places: Places, value: Any, at: tuple[Any, Any]) -> tirx.Stmt:
            own = nest.replace_loads(value, part.output, nest.always(sums[at]))
            return nest.store(sums, own, *at)

        def keep(part: Part, places: Places, _value: Any, at: tuple[Any, Any]) -> tirx.Stmt:
            return self._stored(part, places, sums[at], at)

        none = {axis.var: self._number(0) for axis in part.reduced}
        return nest.sequence(
            nest.declare(sums),
            self._each(part, spot, none, clear),
            self._over(part.reduced, {}, lambda place: self._each(part, spot, place, add)),
            self._each(part, spot, none, keep),
        )

    def _over(self, axes: tuple[Axis, ...], places: Places, body: Callable[[Places], tirx.Stmt]) -> tirx.Stmt:
        """Plain loops over axes."""
        if not axes:
            return body(places)
        first, *rest = axes
        return nest.serial(
            first.extent,
            lambda place: self._over(tuple(rest), {**places, first.var: place}, body),
            self._index,
        )

    def _each(
        self,
        part: Part,
        spot: _Spot,
        places: Places,
        body: Callable[[Part, Places, Any, tuple[Any, Any]], tirx.Stmt],
    ) -> tirx.Stmt:
        """A statement for every element of the chunk, in vectors."""
        ones = {axis.var: self._number(0) for axis in part.block.axes if axis.extent == 1}
        outer = split_place(spot.outer, part.kept[: -self.inner])

        def element(vector: Any, lane: Any) -> tirx.Stmt:
            place = split_place(spot.first + (vector * self.lanes + lane), part.kept[-self.inner :])
            all_places = {**ones, **outer, **places, **place}
            value = self._value(part, all_places, (vector, lane))
            return body(part, all_places, value, (vector, lane))

        def along(vector: Any) -> tirx.Stmt:
            return nest.vectorized(self.lanes, lambda lane: element(vector, lane), self._index)

        return nest.unrolled(self.vectors, along, self._index)

    def _stored(self, part: Part, places: Places, value: Any, at: tuple[Any, Any]) -> tirx.Stmt:
        buffer = self.local.get(part.output)
        if buffer is not None:
            return nest.store(buffer, value, *self._strip_place(part, part, places), *at)
        return nest.store(
            part.output, value, *(nest.substitute(index, places) for index in part.store.indices)
        )

    def _strip_place(self, writer: Part, reader: Part, places: Places) -> list[Any]:
        return [places[axis.var] for axis in reader.reduced] if writer.keeps_strip else []

    def _value(self, part: Part, places: Places, at: tuple[Any, Any]) -> Any:
        """What a part computes at a place, intermediate results read from the chunk's buffers."""
        value = part.store.value
        for writer in self.parts:
            buffer = self.local.get(writer.output)
            if buffer is not None and writer is not part:
                number = buffer[(*self._strip_place(writer, part, places), *at)]
                value = nest.replace_loads(value, writer.output, nest.always(number))
        return nest.substitute(value, places)

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._index, value)


def _buffer(part: Part, vectors: int, lanes: int) -> Any:
    """A buffer for a chunk of an intermediate result."""
    name, dtype = str(part.block.body.name_hint), str(part.output.dtype)
    if part.keeps_strip:
        return nest.workspace((*_sizes(part.reduced), vectors, lanes), dtype, name)
    return nest.registers((vectors, lanes), dtype, name)
