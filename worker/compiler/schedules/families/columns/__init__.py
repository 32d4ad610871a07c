"""Functions that reduce dimensions before the last: softmax over channels, sums over the first axis.

Claims a function whose blocks share the kept and the reduced axes of its first reduction. The last kept axes
are contiguous wherever they are read or written; those are the inner axes, fused to one::

    for parallel task in (outer kept axes, chunk of the inner ones):
        for block in the function:
            # a reduction
            sums[vectors, lanes] = initial value
            for reduced axes:
                for vector: sums[vector, lanes] = combine(sums[vector, lanes], f(...))    # unrolled
            buffer[block] = sums
            # an elementwise block over the reduced axes
            for reduced axes:
                for vector: strip[reduced, vector, lanes] = f(...)                        # unrolled

Registers hold a chunk's sums and results. L1 or L2 holds a strip: an intermediate result, such as the
exponentials of a softmax, of all reduced elements of one chunk. Vectors run across the results, so no lanes
are combined at the end. A chunk has enough vectors to hide the latency of an addition.

Edges: the last chunk moves back over its neighbor, so every chunk is whole and some results are computed
twice.

Source: the axpy (column-oriented) form of the product of a vector and a matrix, Golub and Van Loan, "Matrix
Computations", section 1.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from tvm import s_tir, tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Places, split_place
from worker.compiler.schedules.families.columns.parts import Part, count_inner, find_parts, sizes_of
from worker.compiler.schedules.plans import PlanChooser
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay

_MAX_VECTORS = 8
_IN_FLIGHT = 4
"""The vectors that hide the latency of an addition; fewer vectors take as long."""


def write_columns(schedule: s_tir.Schedule, machine: Machine, _choose: PlanChooser) -> tirx.PrimFunc | None:
    """Write the loops of a function; None if it does not reduce earlier dimensions."""
    parts = find_parts(schedule)
    inner = count_inner(parts) if parts else 0
    if parts is None or inner == 0:
        return None
    function = schedule.mod["main"]
    return nest.with_loops(function, _Writer.of(parts, inner, machine, set(function.params)).tasks())


def chunk_vectors(extent: int, lanes: int, tasks: int, threads: int) -> int:
    """The vectors of a chunk: the least time over all chunks, with at least one task per thread.

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


@dataclass(frozen=True)
class _Origin:
    """The origin of a chunk: the index of the fused outer axes, and the first inner index."""

    outer: Any
    first: Any


@dataclass(frozen=True)
class _Writer:
    """Writes the loops; ``local`` maps intermediate results to their buffers of one chunk."""

    parts: tuple[Part, ...]
    inner: int
    vectors: int
    lanes: int
    is_parallel: bool
    local: dict[Any, Any]

    @staticmethod
    def of(parts: tuple[Part, ...], inner: int, machine: Machine, results: set[Any]) -> _Writer:
        """Choose the chunk and make its buffers."""
        extent = prod(sizes_of(parts[0].kept[-inner:]))
        bits = max(nest.bits_of(part.output.dtype) for part in parts)
        lanes = min(extent, machine.lanes(bits))
        work = sum(part.block.work for part in parts)
        threads = machine.threads if threads_pay(machine.threads, work, WORK_PER_THREAD) else 1
        vectors = chunk_vectors(extent, lanes, prod(sizes_of(parts[0].kept[:-inner])), threads)
        local = {part.output: _buffer(part, vectors, lanes) for part in parts if part.output not in results}
        return _Writer(parts, inner, vectors, lanes, threads > 1, local)

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        kept = self.parts[0].kept
        extent, chunk = prod(sizes_of(kept[-self.inner :])), self.vectors * self.lanes
        chunks = ceil(extent / chunk)
        last = tirx.IntImm(self._index, extent - chunk)

        def task(number: Any) -> tirx.Stmt:
            origin = _Origin(outer=number // chunks, first=tirx.Min(number % chunks * chunk, last))
            statements = [self._part(part, origin) for part in self.parts]
            return nest.sequence(*map(nest.declare, self.local.values()), *statements)

        count = prod(sizes_of(kept[: -self.inner])) * chunks
        return nest.tasks(count, task, self._index, parallel=self.is_parallel)

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.parts[0].block.axes[0].var)

    def _part(self, part: Part, origin: _Origin) -> tirx.Stmt:
        if not part.block.reduced:
            return self._over(part.reduced, {}, lambda place: self._each(part, origin, place, self._stored))
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
            self._each(part, origin, none, clear),
            self._over(part.reduced, {}, lambda place: self._each(part, origin, place, add)),
            self._each(part, origin, none, keep),
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
        origin: _Origin,
        places: Places,
        body: Callable[[Part, Places, Any, tuple[Any, Any]], tirx.Stmt],
    ) -> tirx.Stmt:
        """An unrolled, vectorized statement for every element of the chunk."""
        ones = {axis.var: self._number(0) for axis in part.block.axes if axis.extent == 1}
        outer = split_place(origin.outer, part.kept[: -self.inner])

        def element(vector: Any, lane: Any) -> tirx.Stmt:
            place = split_place(origin.first + (vector * self.lanes + lane), part.kept[-self.inner :])
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
        """A part's value, with intermediate results read from the chunk's buffers."""
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
    """The buffer of one chunk of an intermediate result."""
    name, dtype = str(part.block.body.name_hint), str(part.output.dtype)
    if part.keeps_strip:
        return nest.workspace((*sizes_of(part.reduced), vectors, lanes), dtype, name)
    return nest.registers((vectors, lanes), dtype, name)
