"""Functions that work row by row: softmax, layer and group norm, sums and means over the last dimensions.

Claims a function whose blocks all run over the same rows, and within a row over the same columns, reduced
over or not; at least one block reduces. Columns may be several dimensions; the last must lie contiguously
in memory.

Loop order: tasks (a part of the rows each; in parallel where the work is worth it) → rows → blocks in their
order → columns in vectors. A row's intermediate results never leave the first cache: they have the size of
one row. A reduction keeps several vectors of partial results, which hides the latency of additions and
lets rounding errors grow with the columns divided by their lanes; they are joined pairwise at the end.

Source: the three-pass softmax and the two-pass variance, which suffer no cancellation, read a row from the
first cache every time but the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from worker.schedules import nest
from worker.schedules.blocks import (
    Axis,
    Block,
    block_names,
    element_bits,
    guess,
    has_branch,
    read_block,
    same_sizes,
)
from worker.schedules.families.access import step_along
from worker.schedules.families.product import Places, split_place
from worker.schedules.machine import Machine
from worker.schedules.plans import Chooser
from worker.schedules.ranking import by_rank
from worker.schedules.spatial import MIN_PARALLEL_WORK

_SUMS = (4, 2, 8, 1)
_DOUBT = 8
_JOINS = (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)


@dataclass(frozen=True)
class Part:
    """A block of the function: its axes that count rows, and those that count columns."""

    block: Block
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    @property
    def output(self) -> Any:
        """The buffer that it writes."""
        return self.block.body.writes[0].source

    @property
    def reduces(self) -> bool:
        """Whether it makes one number of a row."""
        return bool(self.block.reduced)


def write_rows(schedule: s_tir.Schedule, machine: Machine, choose: Chooser) -> tirx.PrimFunc | None:
    """The function as loops of this family, or None where it does not work row by row."""
    parts = find_parts(schedule)
    if parts is None:
        return None
    function = schedule.mod["main"]
    results = set(function.params)
    local = {part.output: _local_buffer(part) for part in parts if part.output not in results}
    plan = choose(rows_plans(_shape(parts, machine), machine.threads))
    return nest.with_loops(function, _Writer(parts, local, machine, plan).tasks())


@dataclass(frozen=True)
class RowsShape:
    """``rows`` rows, of which each reduction reads ``vectors`` vectors; all of it is ``work`` operations."""

    rows: int
    vectors: int
    work: int


@dataclass(frozen=True)
class RowsPlan:
    """How rows are worked through.

    Attributes:
        sums: vectors of partial results of a reduction.
        tasks: parts of the rows, which run in parallel.
    """

    sums: int
    tasks: int


def rows_plans(shape: RowsShape, threads: int) -> tuple[RowsPlan, ...]:
    """The ways to work through rows, the most promising first."""
    tasks = threads if shape.work >= MIN_PARALLEL_WORK else 1
    near = MIN_PARALLEL_WORK / _DOUBT <= shape.work <= MIN_PARALLEL_WORK * _DOUBT
    others = (1, threads) if near else (tasks,)
    sums = dict.fromkeys(max(1, min(each, shape.vectors)) for each in _SUMS)
    parts = dict.fromkeys(min(each, shape.rows) for each in (tasks, *others))
    return tuple(RowsPlan(*choices) for choices in by_rank(tuple(sums), tuple(parts)))


def _shape(parts: tuple[Part, ...], machine: Machine) -> RowsShape:
    lengths = [_vectors(part, machine) for part in parts if part.reduces]
    work = sum(part.block.work for part in parts)
    return RowsShape(rows=prod(axis.extent for axis in parts[0].rows), vectors=max(lengths), work=work)


def _vectors(part: Part, machine: Machine) -> int:
    """Whole vectors of the innermost columns; where these are open, as many as any plan asks for."""
    last = part.columns[-1]
    return max(_SUMS) if last.is_open else last.extent // machine.lanes(element_bits(part.block))


def find_parts(schedule: s_tir.Schedule) -> tuple[Part, ...] | None:
    """The blocks of a function that works row by row."""
    blocks = [
        read_block(schedule, schedule.get_sblock(name), may_be_open=True) for name in block_names(schedule)
    ]
    if not all(block is not None and _is_plain(block) for block in blocks):
        return None
    reductions = [block for block in blocks if block is not None and block.reduced]
    if not reductions:
        return None
    rows, columns = _long(reductions[0].spatial), _long(reductions[0].reduced)
    parts = [_as_part(block, rows, columns) for block in blocks if block is not None]
    found = tuple(part for part in parts if part is not None)
    if len(found) != len(blocks) or not columns or not _reads_suit(found):
        return None
    return found


def _is_plain(block: Block) -> bool:
    body = block.body.body
    return isinstance(body, tirx.BufferStore) and not has_branch(block.body) and _is_known_reduction(block)


def _is_known_reduction(block: Block) -> bool:
    if not block.reduced:
        return True
    body = block.body.body
    previous = body.value.a if isinstance(body.value, _JOINS) else None
    spatial_last = [axis.reduces for axis in block.axes] == sorted(axis.reduces for axis in block.axes)
    return (
        spatial_last
        and isinstance(previous, TensorLoad)
        and previous.source.same_as(body.buffer)
        and block.body.init is not None
    )


def _long(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    return tuple(axis for axis in axes if axis.extent > 1)


def _as_part(block: Block, rows: tuple[Axis, ...], columns: tuple[Axis, ...]) -> Part | None:
    """The block with its axes told apart, or None where it runs over something else."""
    own = _long(block.axes)
    if block.reduced:
        same = same_sizes(_long(block.spatial), rows) and same_sizes(_long(block.reduced), columns)
    else:
        same = same_sizes(own, rows) or same_sizes(own, (*rows, *columns))
    return Part(block, own[: len(rows)], own[len(rows) :]) if same else None


def _reads_suit(parts: tuple[Part, ...]) -> bool:
    """Whether columns lie contiguously or do not matter, and results are read in their own row."""
    written = {part.output: part for part in parts}
    return all(
        _read_suits(load, part, written.get(load.source))
        for part in parts
        for load in nest.loads_of(part.block.body.body.value)
    ) and all(_writes_own_place(part) for part in parts)


def _read_suits(load: Any, part: Part, writer: Part | None) -> bool:
    if writer is not None and not _is_own_place(load.indices, part, writer):
        return False
    return not part.columns or step_along(load, part.columns[-1]) in (0, 1)


def _is_own_place(indices: Any, part: Part, writer: Part) -> bool:
    """Whether a part reads a result in the row, and at the column, where it stands."""
    own = [axis.var for axis in (*part.rows, *part.columns)]
    places = [index for index, size in zip(indices, writer.output.shape, strict=True) if guess(size) > 1]
    return len(places) <= len(own) and all(
        place.same_as(var) for place, var in zip(places, own[: len(places)], strict=True)
    )


def _writes_own_place(part: Part) -> bool:
    indices = part.block.body.body.indices
    own = (*part.rows, *(() if part.reduces else part.columns))
    long = [index for index, size in zip(indices, part.output.shape, strict=True) if guess(size) > 1]
    return len(long) == len(own) and all(
        index.same_as(axis.var) for index, axis in zip(long, own, strict=True)
    )


def _local_buffer(part: Part) -> Any:
    """A buffer for one row of an intermediate result."""
    name = str(part.block.body.name_hint)
    if part.reduces or not part.columns:
        return nest.registers((1,), str(part.output.dtype), name)
    return nest.workspace([axis.size for axis in part.columns], str(part.output.dtype), name)


@dataclass(frozen=True)
class _Writer:
    """Writes the loops; ``local`` holds the buffers of one row, by those of the function."""

    parts: tuple[Part, ...]
    local: dict[Any, Any]
    machine: Machine
    plan: RowsPlan

    def tasks(self) -> tirx.Stmt:
        """All loops."""
        rows = prod(axis.size for axis in self.parts[0].rows)
        each = nest.larger(1, nest.ceil_div(rows, self.plan.tasks))
        last = self._number(rows - each) if isinstance(rows, int) else rows - each

        def task(number: Any) -> tirx.Stmt:
            first = tirx.Min(number * each, last)
            body = nest.serial(each, lambda row: self._row(first + row), self._index)
            return nest.sequence(*map(nest.declare, self.local.values()), body)

        return nest.parallel(nest.ceil_div(rows, each), task, self._index)

    @property
    def _index(self) -> str:
        return nest.dtype_of(self.parts[0].block.axes[0].var)

    def _row(self, row: Any) -> tirx.Stmt:
        return nest.sequence(*(self._part(part, row) for part in self.parts))

    def _part(self, part: Part, row: Any) -> tirx.Stmt:
        ones = {axis.var: self._number(0) for axis in part.block.axes if axis.extent == 1}
        places = {**ones, **split_place(row, part.rows)}
        if part.reduces:
            return self._reduced(part, places)
        if not part.columns:
            return self._store(part, places)
        return self._over(part, lambda column: self._store(part, {**places, **column}))

    def _over(self, part: Part, body: Callable[[Places], tirx.Stmt]) -> tirx.Stmt:
        """A statement for every column, in vectors; the last vector may be shorter."""
        *others, last = part.columns
        lanes, index = self._lanes(part), self._index
        whole, rest = last.size // lanes, last.size % lanes

        def along(outer: Places) -> tirx.Stmt:
            def vector(number: Any) -> tirx.Stmt:
                return self._vector(lanes, lambda lane: body({**outer, last.var: number * lanes + lane}))

            def end(lane: Any) -> tirx.Stmt:
                return body({**outer, last.var: lane + whole * lanes})

            if last.is_open:
                return nest.sequence(nest.serial(whole, vector, index), nest.serial(rest, end, index))
            return _sequence(self._times(whole, vector), self._vector(rest, end) if rest else None)

        return self._outer(others, along)

    def _outer(self, axes: list[Axis], body: Callable[[Places], tirx.Stmt]) -> tirx.Stmt:
        """Plain loops over the columns' dimensions but the last."""
        count = prod(axis.size for axis in axes)
        return nest.serial(count, lambda place: body(split_place(place, tuple(axes))), self._index)

    def _times(self, count: nest.Size, body: nest.Body) -> tirx.Stmt | None:
        """A loop, which may have no turn."""
        is_empty = isinstance(count, int) and count == 0
        return None if is_empty else nest.serial(count, body, self._index)

    def _vector(self, lanes: int, body: nest.Body) -> tirx.Stmt:
        return nest.vectorized(lanes, body, self._index)

    def _number(self, value: int) -> Any:
        return tirx.IntImm(self._index, value)

    def _lanes(self, part: Part) -> int:
        return self.machine.lanes(int(tvm.DataType(str(part.output.dtype)).bits))

    def _reduced(self, part: Part, places: Places) -> tirx.Stmt:
        """Join the columns: whole vectors into vectors of partial results, the rest into one number."""
        *others, last = part.columns
        lanes, first = self._lanes(part), part.block.body.init.value
        vectors, rest = last.size // lanes, last.size % lanes
        width = self.plan.sums if last.is_open else max(1, min(self.plan.sums, vectors))
        sums = nest.registers((width, lanes), str(part.output.dtype), "sums")
        single = nest.registers((1,), str(part.output.dtype), "rest")

        def add(to: Any, at: tuple[Any, ...], column: Places) -> tirx.Stmt:
            term = self._value(part.block.body.body.value.b, part, {**places, **column})
            return nest.store(to, _join(part)(to[at], term), *at)

        def add_vector(outer: Places, number: Any, place: Any) -> tirx.Stmt:
            """Add the columns' vector of a number to the partial result at a place."""
            start = number * lanes
            return self._vector(
                lanes, lambda lane: add(sums, (place, lane), {**outer, last.var: start + lane})
            )

        def step(outer: Places, number: Any, count: int) -> tirx.Stmt:
            def vector(place: Any) -> tirx.Stmt:
                return add_vector(outer, number * width + place, place)

            return nest.unrolled(count, vector, self._index)

        def remaining(outer: Places, turns: nest.Size, left: nest.Size) -> tirx.Stmt | None:
            if not isinstance(left, int):
                first_left = turns * width
                one = self._number(0)
                return nest.serial(
                    left, lambda number: add_vector(outer, first_left + number, one), self._index
                )
            return step(outer, self._number(turns), left) if left else None

        def along(outer: Places) -> tirx.Stmt:
            turns, left = vectors // width, vectors % width

            def end(column: Any) -> tirx.Stmt:
                return add(single, (self._number(0),), {**outer, last.var: column + vectors * lanes})

            return _sequence(
                self._times(turns, lambda number: step(outer, number, width)),
                remaining(outer, turns, left),
                self._times(rest, end),
            )

        def clear(place: Any) -> tirx.Stmt:
            return self._vector(lanes, lambda lane: nest.store(sums, first, place, lane))

        has_vectors, has_rest = last.is_open or vectors > 0, last.is_open or rest > 0
        terms = [sums[place, lane] for lane in range(lanes) for place in range(width)] if has_vectors else []
        terms += [single[self._number(0)]] if has_rest else []
        return nest.sequence(
            nest.declare(sums),
            nest.declare(single),
            nest.unrolled(width, clear, self._index),
            nest.store(single, first, self._number(0)),
            self._outer(others, along),
            self._stored(part, _pairwise(terms, _join(part)), places),
        )

    def _store(self, part: Part, places: Places) -> tirx.Stmt:
        return self._stored(part, self._value(part.block.body.body.value, part, places), places)

    def _stored(self, part: Part, value: Any, places: Places) -> tirx.Stmt:
        buffer = self.local.get(part.output)
        if buffer is not None:
            return nest.store(buffer, value, *self._place(part, part, places))
        indices = part.block.body.body.indices
        return nest.store(part.output, value, *(nest.substitute(index, places) for index in indices))

    def _place(self, writer: Part, reader: Part, places: Places) -> list[Any]:
        """Where in its row's buffer a result stands that one part makes and one reads."""
        if writer.reduces or not writer.columns:
            return [self._number(0)]
        return [places[axis.var] for axis in reader.columns]

    def _value(self, expression: Any, part: Part, places: Places) -> Any:
        """An expression of a part at a place, intermediate results read from their rows."""
        value = expression
        for writer in self.parts:
            buffer = self.local.get(writer.output)
            if buffer is not None:
                number = buffer[tuple(self._place(writer, part, places))]
                value = nest.replace_loads(value, writer.output, nest.always(number))
        return nest.substitute(value, places)


def _sequence(*statements: tirx.Stmt | None) -> tirx.Stmt:
    return nest.sequence(*(statement for statement in statements if statement is not None))


def _join(part: Part) -> Callable[[Any, Any], Any]:
    return type(part.block.body.body.value)


def _pairwise(terms: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    while len(terms) > 1:
        joined = [join(one, other) for one, other in zip(terms[::2], terms[1::2], strict=False)]
        terms = joined + terms[len(joined) * 2 :]
    return terms[0]
