"""What families for GPUs write their kernels with: grids, barriers, shuffles, and vectors of memory.

A thread's part of an expression is a vector of adjacent places. ``Memory.vector`` looks at every load in the
expression::

    neighbors in memory, the first aligned     →   one vector load to registers, before the statement
    the same element for all lanes             →   one load
    anything else                              →   one load per lane

A branch whose condition is the same for all lanes, such as padding around a window, becomes a branch around
the vector loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx.analysis import undefined_vars
from tvm.tirx.op import tvm_warp_shuffle_xor
from tvm_ffi import structural_equal

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Axis, Block, Places, split_place

Expression = Any

VECTOR_BYTES = 16
_IF = tvm.ir.Op.get("prim.if_then_else")
_FULL_MASK = 0xFFFFFFFF
_JOINS = (tirx.Add, tirx.Max, tirx.Min, tirx.Mul)


def kernel(
    sizes: Mapping[str, int],
    analyzer: Analyzer,
    body: Callable[..., tirx.Stmt],
    buffers: Sequence[Any] = (),
) -> tirx.Stmt:
    """Loops bound to threads, the grid's first; ``body`` takes their indices in order.

    Args:
        sizes: the extents by the names of the threads' dimensions.
        analyzer: learns the bounds.
        body: writes a thread's part, and may add to the buffers.
        buffers: shared memory. Declared outside the loops, it would be memory of the whole GPU.
    """
    indices = [tirx.Var(name.replace(".", "_"), nest.INDEX) for name in sizes]
    for index, extent in zip(indices, sizes.values(), strict=True):
        analyzer.bind(index, tvm.ir.Range(whole(0), whole(extent)))
    statement = body(*indices)
    statement = nest.sequence(*map(nest.declare, buffers), statement)
    for index, (name, extent) in reversed(list(zip(indices, sizes.items(), strict=True))):
        thread = tirx.IterVar(None, tirx.Var(name, nest.INDEX), tirx.IterVar.ThreadIndex, name)
        kind = tirx.ForKind.THREAD_BINDING
        statement = tirx.For(index, whole(0), whole(extent), kind, statement, thread_binding=thread)
    return statement


def whole(number: int) -> tirx.IntImm:
    """A constant index."""
    return tirx.IntImm(nest.INDEX, number)


def barrier() -> tirx.Stmt:
    """Wait until every thread of the block has written its part of shared memory."""
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))


@dataclass(frozen=True)
class Tile:
    """Shared memory of some rows, a few elements apart so that neighboring rows begin at different banks.

    It has one dimension: TVM would shrink a second one to the columns that are used.
    """

    buffer: Any
    stride: int

    def at(self, row: Any, column: Any) -> Any:
        """The place of an element."""
        return row * self.stride + column

    def store(self, value: Expression, row: Any, column: Any) -> tirx.Stmt:
        """Write an element."""
        return nest.store(self.buffer, value, self.at(row, column))

    def load(self, row: Any, column: Any, lanes: int = 1) -> Expression:
        """Read an element, or a vector of adjacent ones."""
        return self.buffer[ramp(self.at(row, column), lanes)]


def shared_tile(rows: int, columns: int, apart: int, dtype: str, name: str, scope: str = "shared") -> Tile:
    """Shared memory for rows of some columns, with ``apart`` unused elements between them."""
    stride = columns + apart
    return Tile(tirx.decl_buffer((rows * stride,), dtype, name, scope=scope), stride)


def shuffled(value: Expression, distance: int) -> Expression:
    """The value of the thread whose number in the warp differs in one bit."""
    mask = tirx.IntImm("uint32", _FULL_MASK)
    return tvm_warp_shuffle_xor(mask, value, distance, 32, 32)


def when(condition: Expression | None, then: tirx.Stmt) -> tirx.Stmt:
    """A statement under a condition, if there is one."""
    return then if condition is None else tirx.IfThenElse(condition, then, None)


def bits_of(buffer: Any) -> int:
    """Bits of an element in memory, as vectors count them.

    A boolean counts as a whole vector: TVM reads vectors of booleans as 16-bit numbers (0.27).
    """
    dtype = str(buffer.dtype)
    return VECTOR_BYTES * 8 if dtype == "bool" else max(8, nest.bits_of(dtype))


def lanes_of(buffers: Sequence[Any]) -> int:
    """Elements of a vector of 16 bytes, of the widest of some buffers."""
    return max(1, VECTOR_BYTES * 8 // max(map(bits_of, buffers)))


def divisors(lanes: int) -> tuple[int, ...]:
    """Vector lengths up to a power of two, the longest first."""
    return tuple(1 << power for power in reversed(range(lanes.bit_length())))


def flat_index(indices: Sequence[Any], shape: Sequence[Any]) -> Expression:
    """The element's number in a row-major buffer."""
    index: Expression = whole(0)
    for place, size in zip(indices, shape, strict=True):
        index = index * int(size) + as_index(place)
    return index


def as_index(place: Any) -> Expression:
    """An index in the dtype that all loops have."""
    return whole(place) if isinstance(place, int) else place.astype(nest.INDEX)


def is_static(blocks: Sequence[Block]) -> bool:
    """Whether every size of every buffer is known."""
    regions = [region for block in blocks for region in (*block.body.reads, *block.body.writes)]
    known = all(isinstance(size, tirx.IntImm) for region in regions for size in region.source.shape)
    return known and not any(block.is_dynamic for block in blocks)


def places_of(index: Expression, axes: Sequence[Axis], analyzer: Analyzer) -> Places:
    """The values of some axes' variables at the index of the loop that they are fused to."""
    return {variable: analyzer.simplify(place) for variable, place in split_place(index, tuple(axes)).items()}


def extent_of(axes: Sequence[Axis]) -> int:
    """The iterations of nested loops."""
    return prod(axis.extent for axis in axes)


def joined(statement: tirx.BufferStore, one: Expression, other: Expression) -> Expression:
    """Two partial results of a reduction, joined by its combiner."""
    return type(statement.value)(one, other)


def is_plain_reduction(block: Block) -> bool:
    """Whether a block is ``sum = combine(sum, f(...))`` with a known combiner."""
    body = block.body.body
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, _JOINS):
        return False
    before = body.value.a
    return isinstance(before, TensorLoad) and before.source.same_as(body.buffer)


@dataclass(frozen=True)
class Lane:
    """The places of a vector's lanes: loops that are fused to one, and the places of the other loops.

    Attributes:
        axes: the fused loops.
        first: the fused index of the first lane.
        analyzer: knows the bounds.
        others: the values of the other variables.
    """

    axes: tuple[Axis, ...]
    first: Expression
    analyzer: Analyzer
    others: Places = field(default_factory=dict)

    def __call__(self, number: int) -> Places:
        """The values of all variables for a lane."""
        return {**self.others, **places_of(self.first + number, self.axes, self.analyzer)}

    def at(self, expression: Expression, number: int) -> Expression:
        """An expression for a lane."""
        return nest.substitute(expression, self(number))

    def flat(self, buffer: Any, indices: Sequence[Any], number: int) -> Expression:
        """An element's number, for a lane.

        Where the fused loops run over adjacent elements, their index stays one variable: divided into places
        and joined again, it is hard to simplify.
        """
        flat = flat_index(indices, buffer.shape)
        for outer in range(len(self.axes)):
            inner, natural = self.axes[outer:], whole(0)
            for axis in inner:
                natural = natural * axis.extent + axis.var
            rest = self.analyzer.simplify(flat - natural)
            if not any(axis.var in undefined_vars(rest, []) for axis in inner):
                index = self.first + number
                index = index % extent_of(inner) if outer else index
                return self.analyzer.simplify(self.at(rest, number) + index)
        return self.analyzer.simplify(self.at(flat, number))


@dataclass
class Memory:
    """Buffers as vectors, for one kernel.

    Attributes:
        analyzer: knows the bounds of the loops.
        views: each buffer as one dimension.
        registers: values that stand for buffers that are not in memory: expressions by their places.
    """

    analyzer: Analyzer
    views: dict[Any, Any] = field(default_factory=dict)
    registers: dict[Any, Callable[[Sequence[Any], int], Expression]] = field(default_factory=dict)

    def view(self, buffer: Any) -> Any:
        """A buffer as one dimension."""
        if buffer not in self.views:
            size = prod(map(int, buffer.shape))
            self.views[buffer] = tirx.decl_buffer((size,), str(buffer.dtype), f"{buffer.name}_flat")
        return self.views[buffer]

    def declared(self, statement: tirx.Stmt) -> tirx.Stmt:
        """The kernel after the declarations of the views that it uses."""
        views = (tirx.DeclBuffer(view, data=buffer.data) for buffer, view in self.views.items())
        return nest.sequence(*views, statement)

    def flat(self, buffer: Any, indices: Sequence[Any]) -> Expression:
        """The number of an element."""
        return self.analyzer.simplify(flat_index(indices, buffer.shape))

    def step(self, buffer: Any, indices: Sequence[Any], lane: Lane, lanes: int) -> int | None:
        """The distance between the elements of neighboring lanes: 1 only if aligned; None if it varies."""
        first = lane.flat(buffer, indices, 0)
        apart = [
            self.analyzer.simplify(lane.flat(buffer, indices, number) - first) for number in range(1, lanes)
        ]
        for step in (0, 1):
            if all(
                isinstance(distance, tirx.IntImm) and int(distance) == step * number
                for number, distance in enumerate(apart, 1)
            ):
                return step if step == 0 or lanes == 1 or self._is_aligned(first, lanes) else None
        return None

    def _is_aligned(self, flat: Expression, lanes: int) -> bool:
        rest = self.analyzer.simplify(self.analyzer.simplify(flat) % whole(lanes))
        return isinstance(rest, tirx.IntImm) and int(rest) == 0

    def load(self, buffer: Any, flat: Expression, lanes: int) -> Expression:
        """A vector of adjacent elements."""
        return self.view(buffer)[ramp(flat, lanes)]

    def vector(self, value: Expression, lane: Lane, lanes: int) -> Vector:
        """The expression for each lane, and the statements that load its vectors before."""
        collected = _Collected()
        values = self._lanes(value, lane, lanes, collected)
        return Vector(tuple(collected.statements), values)

    def stored(self, buffer: Any, indices: Sequence[Any], vector: Vector, lane: Lane) -> tirx.Stmt:
        """Store a vector of values after its loads."""
        lanes = len(vector.values)
        dtype = str(buffer.dtype)
        view = self.view(buffer)
        places = [lane.flat(buffer, indices, number) for number in range(lanes)]
        if lanes == 1 or self.step(buffer, indices, lane, lanes) != 1:
            stores = [nest.store(view, value, at) for value, at in zip(vector.values, places, strict=True)]
            return nest.sequence(*vector.loads, *stores)
        result = nest.registers((lanes,), dtype, "result")
        return nest.sequence(
            *vector.loads,
            nest.declare(result),
            *(nest.store(result, value, whole(number)) for number, value in enumerate(vector.values)),
            nest.store(view, result[ramp(whole(0), lanes)], ramp(places[0], lanes)),
        )

    def _lanes(self, value: Expression, lane: Lane, lanes: int, collected: _Collected) -> tuple[Any, ...]:
        if _is_branch(value) and lanes > 1 and self._is_uniform(value.args[0], lane, lanes):
            return self._branched(value, lane, lanes, collected)
        inside = _branches_in(value)
        if inside is not None and lanes > 1 and not value.same_as(inside):
            return self._around_branch(value, inside, lane, lanes, collected)
        vectors = inside is None and lanes > 1
        found = self._vectors(value, lane, lanes, collected) if vectors else []

        def of_lane(number: int) -> Expression:
            def replaced(load: Any) -> Any:
                for other, register in found:
                    if structural_equal(load, other):
                        return register[whole(number)]
                return load

            mapped = tvm_ffi.structural_map(value, (TensorLoad, replaced)) if found else value
            return self.flattened(nest.substitute(self._in_views(mapped, lane, number), lane(number)), number)

        return tuple(of_lane(number) for number in range(lanes))

    def _vectors(
        self, value: Expression, lane: Lane, lanes: int, collected: _Collected
    ) -> list[tuple[Any, Any]]:
        """The loads of an expression that are one vector, and the registers that hold it."""
        found: list[tuple[Any, Any]] = []
        for load in nest.loads_of(value):
            known = any(structural_equal(load, other) for other, _ in found)
            if load.source in self.registers or known or _has_register(load, self):
                continue
            if self.step(load.source, load.indices, lane, lanes) == 1:
                found.append((load, self._loaded(load, lane, lanes, collected)))
        return found

    def _in_views(self, value: Expression, lane: Lane, number: int) -> Expression:
        """An expression with loads by lane from views; loads in registers stay."""
        own = set(self.views.values())

        def replaced(load: Any) -> Any:
            if load.source in self.registers or load.source in own or not _is_global(load.source):
                return load
            return self.view(load.source)[lane.flat(load.source, load.indices, number)]

        return tvm_ffi.structural_map(value, (TensorLoad, replaced))

    def _loaded(self, load: Any, lane: Lane, lanes: int, collected: _Collected) -> Any:
        register = nest.registers((lanes,), str(load.source.dtype), "loaded")
        flat = self.flattened(lane.flat(load.source, load.indices, 0), 0)
        collected.statements += [
            nest.declare(register),
            nest.store(register, self.load(load.source, flat, lanes), ramp(whole(0), lanes)),
        ]
        return register

    def flattened(self, value: Expression, lane: int) -> Expression:
        """An expression that reads views and registers instead of buffers."""
        own = set(self.views.values())

        def replaced(load: Any) -> Any:
            if load.source in self.registers:
                return self.registers[load.source](load.indices, lane)
            if load.source in own or not _is_global(load.source):
                return load
            return self.view(load.source)[self.flat(load.source, load.indices)]

        return tvm_ffi.structural_map(value, (TensorLoad, replaced))

    def _is_uniform(self, condition: Expression, lane: Lane, lanes: int) -> bool:
        if any(load.source in self.registers for load in nest.loads_of(condition)):
            return False
        first = self.analyzer.simplify(lane.at(condition, 0))
        others = (self.analyzer.simplify(lane.at(condition, number)) for number in range(1, lanes))
        return all(
            structural_equal(first, other) or self._agree(condition, lane, number)
            for number, other in enumerate(others, 1)
        )

    def _agree(self, condition: Expression, lane: Lane, number: int) -> bool:
        """Whether ``x < c`` has the same truth for two lanes: ``c`` and the vector's start are aligned."""
        if not isinstance(condition, tirx.LT | tirx.GE | tirx.LE | tirx.GT):
            return False
        one, other = condition.a, condition.b
        if isinstance(condition, tirx.GT | tirx.LE):
            one, other = other, one
        apart = self.analyzer.simplify(one - other)
        first = self.analyzer.simplify(lane.at(apart, 0))
        later = self.analyzer.simplify(lane.at(apart, number))
        step = self.analyzer.simplify(later - first)
        group = 1 << number.bit_length()
        rest = self.analyzer.simplify(first % whole(group))
        return (
            isinstance(step, tirx.IntImm)
            and 0 <= int(step) < group
            and isinstance(rest, tirx.IntImm)
            and int(rest) == 0
        )

    def _branched(self, value: Any, lane: Lane, lanes: int, collected: _Collected) -> tuple[Any, ...]:
        condition, *branches = value.args
        result = nest.registers((lanes,), nest.dtype_of(value), "chosen")
        collected.statements.append(nest.declare(result))

        def branch(taken: Any) -> tirx.Stmt:
            inner = _Collected()
            values = self._lanes(taken, lane, lanes, inner)
            stores = [nest.store(result, one, whole(number)) for number, one in enumerate(values)]
            return nest.sequence(*inner.statements, *stores)

        test = self.flattened(self.analyzer.simplify(lane.at(condition, 0)), 0)
        collected.statements.append(tirx.IfThenElse(test, branch(branches[0]), branch(branches[1])))
        return tuple(result[whole(number)] for number in range(lanes))

    def _around_branch(
        self, value: Any, inside: Any, lane: Lane, lanes: int, collected: _Collected
    ) -> tuple[Any, ...]:
        """The lanes of an expression around a branch, with the branch computed first."""
        chosen = self._lanes(inside, lane, lanes, collected)
        stand_in = tirx.decl_buffer((1,), nest.dtype_of(inside), "branch", scope="local")
        self.registers[stand_in] = lambda _indices, number: chosen[number]
        outer = _replaced(value, inside, stand_in[whole(0)])
        return self._lanes(outer, lane, lanes, collected)


@dataclass(frozen=True)
class Vector:
    """The values of lanes, and the statements that must come before."""

    loads: tuple[tirx.Stmt, ...]
    values: tuple[Expression, ...]


@dataclass
class _Collected:
    statements: list[tirx.Stmt] = field(default_factory=list)


def _is_global(buffer: Any) -> bool:
    return str(buffer.scope()) == "global"


def _has_register(load: Any, memory: Memory) -> bool:
    inner = (one for index in load.indices for one in nest.loads_of(index))
    return any(one.source in memory.registers for one in inner)


def _is_branch(value: Any) -> bool:
    return isinstance(value, tvm.ir.Call) and value.op.same_as(_IF)


def _branches_in(value: Any) -> Any:
    """The first outermost branch in an expression; None if it has none."""
    found: list[Any] = []

    def visit(call: Any) -> None:
        if _is_branch(call):
            found.append(call)

    tvm_ffi.structural_walk(value, (tvm.ir.Call, visit))
    if not found:
        return None
    inner = {id(other) for other in found}
    return max(found, key=lambda call: (_size(call), id(call) in inner))


def _size(value: Any) -> int:
    count = [0]
    tvm_ffi.structural_walk(value, (tvm.ir.Call, lambda _call: count.__setitem__(0, count[0] + 1)))
    return count[0]


def _replaced(value: Any, part: Any, by: Any) -> Any:
    def map_call(call: Any) -> Any:
        return by if structural_equal(call, part) else call

    return tvm_ffi.structural_map(value, (tvm.ir.Call, map_call))


def ramp(first: Expression, lanes: int) -> Expression:
    """The places of adjacent elements."""
    return first if lanes == 1 else tirx.Ramp(first, whole(1), lanes)
