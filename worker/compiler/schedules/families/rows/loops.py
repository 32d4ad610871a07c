"""Write the loops of functions that work row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Places, split_place
from worker.compiler.schedules.families.rows.parts import Part
from worker.compiler.schedules.processors import Machine


@dataclass(frozen=True)
class RowLoops:
    """Writes the loops.

    ``local`` maps intermediate results to their buffers of one row. A reduction keeps ``sums`` vectors of
    partial results.
    """

    parts: tuple[Part, ...]
    local: dict[Any, Any]
    machine: Machine
    sums: int

    @staticmethod
    def of(parts: tuple[Part, ...], results: set[Any], machine: Machine, sums: int) -> RowLoops:
        """Make the buffers of intermediate results."""
        local = {part.output: _local_buffer(part) for part in parts if part.output not in results}
        return RowLoops(parts, local, machine, sums)

    def tasks(self, number: int) -> tirx.Stmt:
        """All loops, with the rows in ``number`` parts."""
        rows = prod(axis.size for axis in self.parts[0].rows)
        each = nest.larger(1, nest.ceil_div(rows, number))
        last = self.number(rows - each) if isinstance(rows, int) else rows - each

        def task(index: Any) -> tirx.Stmt:
            first = tirx.Min(index * each, last)
            body = nest.serial(each, lambda row: self._row(first + row), self.index)
            return nest.sequence(*map(nest.declare, self.local.values()), body)

        return nest.parallel(nest.ceil_div(rows, each), task, self.index)

    @property
    def index(self) -> str:
        """The dtype of the loops."""
        return nest.dtype_of(self.parts[0].block.axes[0].var)

    def _row(self, row: Any) -> tirx.Stmt:
        return nest.sequence(*(self._part(part, row) for part in self.parts))

    def _part(self, part: Part, row: Any) -> tirx.Stmt:
        ones = {axis.var: self.number(0) for axis in part.block.axes if axis.extent == 1}
        places = {**ones, **split_place(row, part.rows)}
        if part.reduces:
            return _Reduction.of(self, part, places).statement()
        if not part.columns:
            return self._store(part, places)
        return self._over(part, lambda column: self._store(part, {**places, **column}))

    def _over(self, part: Part, body: Callable[[Places], tirx.Stmt]) -> tirx.Stmt:
        """A vectorized statement for every column; the last vector may be shorter."""
        *others, last = part.columns
        lanes, index = self.lanes(part), self.index
        whole, rest = last.size // lanes, last.size % lanes

        def along(outer: Places) -> tirx.Stmt:
            def vector(number: Any) -> tirx.Stmt:
                return self.vector(lanes, lambda lane: body({**outer, last.var: number * lanes + lane}))

            def end(lane: Any) -> tirx.Stmt:
                return body({**outer, last.var: lane + whole * lanes})

            if last.is_dynamic:
                return nest.sequence(nest.serial(whole, vector, index), nest.serial(rest, end, index))
            return _sequence(self.times(whole, vector), self.vector(rest, end) if rest else None)

        return self.outer(others, along)

    def outer(self, axes: list[Axis], body: Callable[[Places], tirx.Stmt]) -> tirx.Stmt:
        """Plain loops over all dimensions of the columns but the last."""
        count = prod(axis.size for axis in axes)
        return nest.serial(count, lambda place: body(split_place(place, tuple(axes))), self.index)

    def times(self, count: nest.Size, body: nest.Body) -> tirx.Stmt | None:
        """A plain loop; None if it has no iterations."""
        is_empty = isinstance(count, int) and count == 0
        return None if is_empty else nest.serial(count, body, self.index)

    def vector(self, lanes: int, body: nest.Body) -> tirx.Stmt:
        """A vectorized statement."""
        return nest.vectorized(lanes, body, self.index)

    def number(self, value: int) -> Any:
        """A constant index."""
        return tirx.IntImm(self.index, value)

    def lanes(self, part: Part) -> int:
        """Elements of a vector of a part's result."""
        return self.machine.lanes(nest.bits_of(part.output.dtype))

    def _store(self, part: Part, places: Places) -> tirx.Stmt:
        return self.stored(part, self.value(part.block.body.body.value, part, places), places)

    def stored(self, part: Part, value: Any, places: Places) -> tirx.Stmt:
        """Store a part's value in its row's buffer or in the output."""
        buffer = self.local.get(part.output)
        if buffer is not None:
            return nest.store(buffer, value, *self._place(part, part, places))
        indices = part.block.body.body.indices
        return nest.store(part.output, value, *(nest.substitute(index, places) for index in indices))

    def _place(self, writer: Part, reader: Part, places: Places) -> list[Any]:
        """The indices at which a part reads another one's result from the row's buffer."""
        if writer.reduces or not writer.columns:
            return [self.number(0)]
        return [places[axis.var] for axis in reader.columns]

    def value(self, expression: Any, part: Part, places: Places) -> Any:
        """An expression of a part, with intermediate results read from their rows' buffers."""
        value = expression
        for writer in self.parts:
            buffer = self.local.get(writer.output)
            if buffer is not None:
                number = buffer[tuple(self._place(writer, part, places))]
                value = nest.replace_loads(value, writer.output, nest.always(number))
        return nest.substitute(value, places)


@dataclass(frozen=True)
class _Reduction:
    """The reduction of a row: whole vectors are combined into ``sums``, the rest into one number."""

    loops: RowLoops
    part: Part
    places: Places
    sums: Any
    rest: Any

    @staticmethod
    def of(loops: RowLoops, part: Part, places: Places) -> _Reduction:
        """Choose the number of partial results: at most the number of vectors."""
        lanes, last, dtype = loops.lanes(part), part.columns[-1], str(part.output.dtype)
        width = loops.sums if last.is_dynamic else max(1, min(loops.sums, last.extent // lanes))
        sums, rest = nest.registers((width, lanes), dtype, "sums"), nest.registers((1,), dtype, "rest")
        return _Reduction(loops, part, places, sums, rest)

    def statement(self) -> tirx.Stmt:
        """The loops of the row."""
        *others, _ = self.part.columns
        return nest.sequence(
            nest.declare(self.sums),
            nest.declare(self.rest),
            nest.unrolled(self._width, self._clear, self.loops.index),
            nest.store(self.rest, self._first, self.loops.number(0)),
            self.loops.outer(others, self._along),
            self.loops.stored(self.part, _pairwise(self._terms(), self._join), self.places),
        )

    @property
    def _width(self) -> int:
        return int(self.sums.shape[0])

    @property
    def _lanes(self) -> int:
        return int(self.sums.shape[1])

    @property
    def _last(self) -> Axis:
        return self.part.columns[-1]

    @property
    def _first(self) -> Any:
        return self.part.block.body.init.value

    @property
    def _join(self) -> Callable[[Any, Any], Any]:
        return type(self.part.block.body.body.value)

    def _clear(self, place: Any) -> tirx.Stmt:
        return self.loops.vector(self._lanes, lambda lane: nest.store(self.sums, self._first, place, lane))

    def _along(self, outer: Places) -> tirx.Stmt:
        """The loops over the last dimension of the columns."""
        vectors, rest = self._last.size // self._lanes, self._last.size % self._lanes
        turns, left = vectors // self._width, vectors % self._width

        def end(column: Any) -> tirx.Stmt:
            place = {**outer, self._last.var: column + vectors * self._lanes}
            return self._add(self.rest, (self.loops.number(0),), place)

        return _sequence(
            self.loops.times(turns, lambda turn: self._step(outer, turn, self._width)),
            self._remaining(outer, turns, left),
            self.loops.times(rest, end),
        )

    def _remaining(self, outer: Places, turns: nest.Size, left: nest.Size) -> tirx.Stmt | None:
        """The vectors left over by the main loop."""
        if isinstance(left, int):
            return self._step(outer, self.loops.number(turns), left) if left else None
        one, done = self.loops.number(0), turns * self._width
        return nest.serial(left, lambda number: self._add_vector(outer, done + number, one), self.loops.index)

    def _step(self, outer: Places, turn: Any, count: int) -> tirx.Stmt:
        def vector(place: Any) -> tirx.Stmt:
            return self._add_vector(outer, turn * self._width + place, place)

        return nest.unrolled(count, vector, self.loops.index)

    def _add_vector(self, outer: Places, number: Any, place: Any) -> tirx.Stmt:
        """Combine a vector of columns with one of the partial results."""

        def add(lane: Any) -> tirx.Stmt:
            column = {**outer, self._last.var: number * self._lanes + lane}
            return self._add(self.sums, (place, lane), column)

        return self.loops.vector(self._lanes, add)

    def _add(self, to: Any, at: tuple[Any, ...], column: Places) -> tirx.Stmt:
        term = self.loops.value(self.part.block.body.body.value.b, self.part, {**self.places, **column})
        return nest.store(to, self._join(to[at], term), *at)

    def _terms(self) -> list[Any]:
        """The partial results to combine at the end."""
        is_dynamic, lanes = self._last.is_dynamic, self._lanes
        terms: list[Any] = []
        if is_dynamic or self._last.extent >= lanes:
            terms += [self.sums[place, lane] for lane in range(lanes) for place in range(self._width)]
        if is_dynamic or self._last.extent % lanes:
            terms.append(self.rest[self.loops.number(0)])
        return terms


def _local_buffer(part: Part) -> Any:
    """The buffer of one row of an intermediate result."""
    name = str(part.block.body.name_hint)
    if part.reduces or not part.columns:
        return nest.registers((1,), str(part.output.dtype), name)
    return nest.workspace([axis.size for axis in part.columns], str(part.output.dtype), name)


def _sequence(*statements: tirx.Stmt | None) -> tirx.Stmt:
    return nest.sequence(*(statement for statement in statements if statement is not None))


def _pairwise(terms: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    while len(terms) > 1:
        joined = [join(one, other) for one, other in zip(terms[::2], terms[1::2], strict=False)]
        terms = joined + terms[len(joined) * 2 :]
    return terms[0]
