"""Functions that work row by row in one kernel: softmax, layer norm, RMS norm, sums over last dimensions.

Claims what the family ``rows`` claims on processors: blocks that all run over the same rows and, within a
row, over the same columns; at least one reduces the columns::

    for block, group of threads = row:
        for block of the function:                                 # such as maximum, exp, sum, quotient
            # a reduction
            for n vectors of the thread's columns:                 # unrolled
                partial[lane] = combine(partial[lane], f(...))
            join the lanes; join the threads by shuffles in the warp, then by shared memory between warps
            # an elementwise block
            for n vectors of the thread's columns: registers[vector] = f(...), or the output

The row stays in registers: what two blocks read is loaded from memory once, intermediate rows are never
stored. A row of at most eight vectors per lane belongs to one warp (or a part of one), so that no barrier is
needed; a longer row belongs to a block of up to 1024 threads.

Edges: a thread skips a last vector that lies past the row. Rows past the last repeat the last one and store
nothing.

Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, algorithm 2, with the row
in registers instead of three passes over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

from tvm import s_tir, tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_equal

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Places
from worker.compiler.schedules.families.rows.parts import Part, find_parts
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.threads import (
    Lane,
    Memory,
    barrier,
    divisors,
    extent_of,
    flat_index,
    is_plain_reduction,
    is_static,
    kernel,
    lanes_of,
    places_of,
    shared_tile,
    shuffled,
    when,
    whole,
)

_ROW_REGISTERS = 64
"""The registers that rows may take in a thread, of 255."""
_MOST_VECTORS = 8
"""Vectors of a row in a thread, beyond which a row gets more threads."""
_BLOCK = 128
"""Threads of a block of several rows."""


def write_rows(schedule: s_tir.Schedule, gpu: Gpu) -> tirx.PrimFunc | None:
    """Write the kernel of a function; None if it does not work row by row, or if a row is too long."""
    parts = find_parts(schedule)
    if parts is None or not is_static([part.block for part in parts]):
        return None
    if not all(is_plain_reduction(part.block) for part in parts if part.reduces):
        return None
    function = schedule.mod["main"]
    parameters = frozenset(function.params)
    if not all(_reads_rows(part, parameters) for part in parts if part.reduces):
        return None
    plan = _plan(parts, parameters, gpu)
    if plan is None:
        return None
    return nest.with_loops(function, _Rows(parts, plan, parameters).loops())


@dataclass(frozen=True)
class RowsPlan:
    """How rows are divided.

    Attributes:
        rows: all rows.
        columns: elements of a row.
        lanes: elements of a vector.
        threads: threads of a row.
        vectors: vectors of a thread.
        rows_per_block: the rows that the threads of a block compute.
    """

    rows: int
    columns: int
    lanes: int
    threads: int
    vectors: int
    rows_per_block: int


def _plan(parts: tuple[Part, ...], parameters: frozenset[Any], gpu: Gpu) -> RowsPlan | None:
    first = next(part for part in parts if part.reduces)
    rows, columns = extent_of(first.rows), extent_of(first.columns)
    lanes = _lanes(parts, columns, parameters)
    vectors = -(-columns // lanes)
    kept = _kept_rows(parts)
    most = max(1, min(_MOST_VECTORS, _ROW_REGISTERS // (lanes * kept)))
    threads = 1
    while threads < gpu.warp and threads < vectors:
        threads *= 2
    while threads < gpu.threads_per_block and -(-vectors // threads) > most:
        threads *= 2
    each = -(-vectors // threads)
    if each * lanes * kept > _ROW_REGISTERS * 2:
        return None
    if rows < gpu.multiprocessors:
        # Few rows leave multiprocessors idle: shorten the work of each thread.
        while threads < gpu.warp * 8 and threads < vectors:
            threads *= 2
        each = -(-vectors // threads)
    in_block = 1
    while threads * in_block * 2 <= _BLOCK and rows >= in_block * 2 * gpu.multiprocessors:
        in_block *= 2
    if threads < gpu.warp:
        in_block = max(in_block, gpu.warp // threads)
    return RowsPlan(rows, columns, lanes, threads, each, in_block)


def _reads_rows(part: Part, parameters: frozenset[Any]) -> bool:
    """Whether a reduction reads adjacent elements, each once: windows have kernels of their own."""
    loads = [
        load
        for load in nest.loads_of(part.block.body.body.value.b)
        if load.source in parameters and any(axis.var in _variables(load) for axis in part.columns)
    ]
    natural: Any = whole(0)
    for axis in part.columns:
        natural = natural * axis.extent + axis.var
    elements = extent_of(part.rows) * extent_of(part.columns)
    return not loads or any(
        prod(map(int, load.source.shape)) >= elements
        and not any(
            axis.var in _variables(Analyzer().simplify(flat_index(load.indices, load.source.shape) - natural))
            for axis in part.columns
        )
        for load in loads
    )


def _kept_rows(parts: tuple[Part, ...]) -> int:
    """The rows that stay in registers, at most: inputs read by several blocks, and intermediate results."""
    made = sum(not part.reduces and bool(part.columns) for part in parts[:-1])
    sources: list[Any] = []
    for part in parts:
        for load in nest.loads_of(part.block.body.body.value):
            if any(axis.var.same_as(last) for axis in part.columns[-1:] for last in load.indices[-1:]):
                sources.append(load.source)
    written = {part.output for part in parts}
    again = {source for source in sources if source not in written and sources.count(source) > 1}
    return max(1, made + len(again))


def _lanes(parts: tuple[Part, ...], columns: int, parameters: frozenset[Any]) -> int:
    """The longest vector that divides a row, and whose accesses have at most 16 bytes."""
    loads = [(load.source, part) for part in parts for load in nest.loads_of(part.block.body.body.value)]
    stores = [(part.output, part) for part in parts if not part.reduces]
    lanes = lanes_of([buffer for buffer, part in (*loads, *stores) if part.columns and buffer in parameters])
    return next(each for each in divisors(lanes) if gcd(each, columns) == each)


@dataclass
class _Cached:
    """A row in registers: what is loaded, at the row's and the columns' variables."""

    load: Any
    register: Any


@dataclass
class _Rows:
    """Writes the kernel of a function."""

    parts: tuple[Part, ...]
    plan: RowsPlan
    parameters: frozenset[Any]
    memory: Memory = field(default_factory=lambda: Memory(Analyzer()))
    rows: dict[Any, Any] = field(default_factory=dict)
    """Registers with an intermediate row, or the one number of a reduction, by the buffer they replace."""
    cached: list[_Cached] = field(default_factory=list)
    shared: list[Any] = field(default_factory=list)

    def loops(self) -> tirx.Stmt:
        """The kernel."""
        plan = self.plan
        sizes = {
            "blockIdx.x": -(-plan.rows // plan.rows_per_block),
            "threadIdx.y": plan.rows_per_block,
            "threadIdx.x": plan.threads,
        }
        return self.memory.declared(kernel(sizes, self.memory.analyzer, self._of_thread, self.shared))

    def _of_thread(self, number: Any, group: Any, thread: Any) -> tirx.Stmt:
        plan = self.plan
        row, is_own = number * plan.rows_per_block + group, None
        if plan.rows % plan.rows_per_block:
            is_own = row < plan.rows
            row = tirx.Min(row, whole(plan.rows - 1))
        thread_of = _Thread(row, is_own, group, thread)
        return nest.sequence(*(self._part(part, thread_of) for part in self.parts))

    def _part(self, part: Part, at: _Thread) -> tirx.Stmt:
        if part.reduces:
            return self._reduction(part, at)
        return self._elements(part, at) if part.columns else self._number(part, at)

    def _row_places(self, part: Part, at: _Thread) -> Places:
        places = places_of(at.row, part.rows, self.memory.analyzer)
        return places | self._ones(part)

    def _ones(self, part: Part) -> Places:
        used = (*part.rows, *part.columns)
        return {axis.var: whole(0) for axis in part.block.axes if not any(axis is one for one in used)}

    def _lane(self, part: Part, at: _Thread, vector: int) -> Lane:
        first = (whole(vector * self.plan.threads) + at.thread) * self.plan.lanes
        return Lane(part.columns, first, self.memory.analyzer, self._row_places(part, at))

    def _guard(self, at: _Thread, vector: int) -> Any:
        """Whether a vector lies in the row; None if it always does."""
        plan = self.plan
        if (vector + 1) * plan.threads * plan.lanes <= plan.columns:
            return None
        return (whole(vector * plan.threads) + at.thread) * plan.lanes < plan.columns

    def _each_vector(self, at: _Thread, statement: Callable[[int], tirx.Stmt]) -> tirx.Stmt:
        return nest.sequence(
            *(when(self._guard(at, vector), statement(vector)) for vector in range(self.plan.vectors))
        )

    def _prepared(self, part: Part, at: _Thread) -> list[tirx.Stmt]:
        """Load the rows that another block reads again."""
        statements: list[tirx.Stmt] = []
        for load in nest.loads_of(part.block.body.body.value):
            if load.source in self.rows or self._cache_of(load, part) is not None:
                continue
            if not self._is_read_again(load, part):
                continue
            size = self.plan.vectors * self.plan.lanes
            register = nest.registers((size,), str(load.source.dtype), "row")
            statements.append(nest.declare(register))

            def fill(vector: int, load: Any = load, register: Any = register) -> tirx.Stmt:
                read = self.memory.vector(load, self._lane(part, at, vector), self.plan.lanes)
                first = vector * self.plan.lanes
                stores = (
                    nest.store(register, value, whole(first + number))
                    for number, value in enumerate(read.values)
                )
                return nest.sequence(*read.loads, *stores)

            statements.append(self._each_vector(at, fill))
            self.cached.append(_Cached(self._canonical(load, part), register))
        return statements

    def _canonical(self, load: Any, part: Part) -> Any:
        """A load with the variables of the first part, so that parts can be compared."""
        first = next(one for one in self.parts if one.reduces)
        variables = {
            axis.var: other.var
            for axis, other in zip((*part.rows, *part.columns), (*first.rows, *first.columns), strict=False)
        }
        return nest.substitute(load, variables | self._ones(part))

    def _cache_of(self, load: Any, part: Part) -> Any:
        own = self._canonical(load, part)
        return next((one.register for one in self.cached if structural_equal(one.load, own)), None)

    def _is_read_again(self, load: Any, part: Part) -> bool:
        own = self._canonical(load, part)
        columns = next(one for one in self.parts if one.reduces).columns
        if not any(axis.var in _variables(own) for axis in columns):
            return False
        later = self.parts[[one is part for one in self.parts].index(True) + 1 :]
        return any(
            structural_equal(self._canonical(other, one), own)
            for one in later
            for other in nest.loads_of(one.block.body.body.value)
            if one.columns
        )

    def _vector(self, part: Part, value: Any, at: _Thread, vector: int) -> Any:
        """The values of a vector's lanes, with rows in registers instead of loads."""
        lanes = self.plan.lanes
        for load in nest.loads_of(value):
            register = self.rows.get(load.source, self._cache_of(load, part))
            if register is not None:
                value = self._in_register(value, load, register, vector, part)
        return self.memory.vector(value, self._lane(part, at, vector), lanes)

    def _in_register(self, value: Any, load: Any, register: Any, vector: int, part: Part) -> Any:
        """The expression with a load replaced by a buffer that stands for a register of each lane."""
        stand_in = tirx.decl_buffer((1,), str(register.dtype), f"{register.name}_at", scope="local")
        is_row = (len(part.columns) and int(register.shape[0]) > 1) or self._is_row(register)
        first = vector * self.plan.lanes

        def of_lane(_indices: Any, number: int) -> Any:
            return register[whole(first + number if is_row else 0)]

        self.memory.registers[stand_in] = of_lane
        return _with(value, load, stand_in[whole(0)])

    def _is_row(self, register: Any) -> bool:
        return any(one.register.same_as(register) for one in self.cached) or any(
            register.same_as(self.rows.get(part.output))
            for part in self.parts
            if not part.reduces and part.columns
        )

    def _reduction(self, part: Part, at: _Thread) -> tirx.Stmt:
        body, lanes = part.block.body.body, self.plan.lanes
        dtype, combine = str(body.buffer.dtype), type(body.value)
        partial = nest.registers((lanes,), dtype, "partial")
        number = nest.registers((1,), dtype, str(body.buffer.name))
        initial = part.block.body.init.value

        def add(vector: int) -> tirx.Stmt:
            read = self._vector(part, body.value.b, at, vector)
            return nest.sequence(
                *read.loads,
                *(
                    nest.store(partial, combine(partial[whole(lane)], value), whole(lane))
                    for lane, value in enumerate(read.values)
                ),
            )

        total = partial[whole(0)]
        for lane in range(1, lanes):
            total = combine(total, partial[whole(lane)])
        prepared = self._prepared(part, at)
        statement = nest.sequence(
            *prepared,
            nest.declare(partial),
            *(nest.store(partial, initial, whole(lane)) for lane in range(lanes)),
            self._each_vector(at, add),
            nest.declare(number),
            nest.store(number, total, whole(0)),
            *self._joined(number, combine, at),
        )
        self.rows[body.buffer] = number
        if body.buffer in self.parameters:
            return nest.sequence(statement, self._kept(part, number[whole(0)], at))
        return statement

    def _joined(self, number: Any, combine: Any, at: _Thread) -> list[tirx.Stmt]:
        """Join the threads of a row: by shuffles in a warp, then by shared memory."""
        statements, distance = [], min(self.plan.threads, 32) // 2
        while distance:
            value = combine(number[whole(0)], shuffled(number[whole(0)], distance))
            statements.append(nest.store(number, value, whole(0)))
            distance //= 2
        warps = self.plan.threads // 32
        if warps <= 1:
            return statements
        kept = shared_tile(self.plan.rows_per_block, warps, 0, str(number.dtype), "warps")
        self.shared.append(kept.buffer)
        total = kept.load(at.group, whole(0))
        for warp in range(1, warps):
            total = combine(total, kept.load(at.group, whole(warp)))
        is_first = at.thread % 32 < 1
        return [
            *statements,
            when(is_first, kept.store(number[whole(0)], at.group, at.thread // 32)),
            barrier(),
            nest.store(number, total, whole(0)),
        ]

    def _number(self, part: Part, at: _Thread) -> tirx.Stmt:
        """An elementwise block over rows: every thread of the row computes its one number."""
        body = part.block.body.body
        value = self._value_of_row(part, body.value, at)
        if body.buffer in self.parameters and not self._is_read(body.buffer):
            return self._kept(part, value, at)
        number = nest.registers((1,), str(body.buffer.dtype), str(body.buffer.name))
        self.rows[body.buffer] = number
        statement = nest.sequence(nest.declare(number), nest.store(number, value, whole(0)))
        if body.buffer in self.parameters:
            return nest.sequence(statement, self._kept(part, number[whole(0)], at))
        return statement

    def _value_of_row(self, part: Part, value: Any, at: _Thread) -> Any:
        for load in nest.loads_of(value):
            if load.source in self.rows:
                value = _with(value, load, self.rows[load.source][whole(0)])
        return self.memory.flattened(nest.substitute(value, self._row_places(part, at)), 0)

    def _is_read(self, buffer: Any) -> bool:
        return any(
            load.source.same_as(buffer)
            for part in self.parts
            if not part.output.same_as(buffer)
            for load in nest.loads_of(part.block.body.body.value)
        )

    def _kept(self, part: Part, value: Any, at: _Thread) -> tirx.Stmt:
        """Store a row's one number, by its first thread."""
        body = part.block.body.body
        places = self._row_places(part, at)
        flat = self.memory.flat(body.buffer, [nest.substitute(index, places) for index in body.indices])
        own = [at.is_own] if at.is_own is not None else []
        own += [at.thread < 1] if self.plan.threads > 1 else []
        condition = tirx.all(*own) if own else None
        return when(condition, nest.store(self.memory.view(body.buffer), value, flat))

    def _elements(self, part: Part, at: _Thread) -> tirx.Stmt:
        body, lanes = part.block.body.body, self.plan.lanes
        prepared = self._prepared(part, at)
        is_result = body.buffer in self.parameters
        register = None
        if not is_result or self._is_read(body.buffer):
            register = nest.registers((self.plan.vectors * lanes,), str(body.buffer.dtype), "kept")

        def of_vector(vector: int) -> tirx.Stmt:
            read = self._vector(part, body.value, at, vector)
            statements = list(read.loads)
            if register is not None:
                places = [whole(vector * lanes + lane) for lane in range(lanes)]
                statements += [
                    nest.store(register, value, place)
                    for value, place in zip(read.values, places, strict=True)
                ]
                read = type(read)((), tuple(register[place] for place in places))
            if is_result:
                lane = self._lane(part, at, vector)
                statements.append(
                    when(
                        at.is_own,
                        self.memory.stored(body.buffer, body.indices, type(read)((), read.values), lane),
                    )
                )
            return nest.sequence(*statements)

        statement = nest.sequence(
            *prepared,
            *([nest.declare(register)] if register is not None else []),
            self._each_vector(at, of_vector),
        )
        if register is not None:
            self.rows[body.buffer] = register
        return statement


@dataclass(frozen=True)
class _Thread:
    """A thread's row, whether it stores results, its row's number in the block, its number in the row."""

    row: Any
    is_own: Any
    group: Any
    thread: Any


def _variables(expression: Any) -> set[Any]:
    from tvm.tirx.analysis import undefined_vars

    return set(undefined_vars(expression, []))


def _with(value: Any, load: Any, by: Any) -> Any:
    import tvm_ffi
    from tvm.ir import TensorLoad

    return tvm_ffi.structural_map(value, (TensorLoad, lambda one: by if structural_equal(one, load) else one))
