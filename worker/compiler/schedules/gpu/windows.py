"""Reductions whose neighboring results read neighboring elements: pooling, sums over leading dimensions.

Claims a function of one reduction, with at most one elementwise block before it (padding) and one after it::

    for block, thread x = vector of results:                        # channels of an image in NHWC
        for thread y = part of the reduced elements:                # if there are few results
            sums[lanes] = initial value
            for reduced elements of the part:                       # unrolled if they are few, as in a window
                sums[lanes] = combine(sums[lanes], f(...))          # one load of 16 bytes
        join the parts by shared memory
        output[vector] = epilogue(sums)

Products (a matrix by a matrix, a convolution) belong to other families, which come first.

Edges: a branch around a window's padding is a branch around the vector load; vectors past the last one
repeat it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.blocks import Block, Places, block_names, long_axes, read_blocks, same_sizes
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.threads import (
    Lane,
    Memory,
    Vector,
    barrier,
    bits_of,
    divisors,
    extent_of,
    is_plain_reduction,
    is_static,
    kernel,
    lanes_of,
    places_of,
    shared_tile,
    when,
    whole,
)

_THREADS = 128
_FEW = 16
"""Reduced elements up to which their loop is unrolled."""
_PART = 4
"""The reduced elements that a thread should have at least."""


def write_windows(schedule: s_tir.Schedule, gpu: Gpu) -> tirx.PrimFunc | None:
    """Write the kernel of a function; None if it is not one reduction with an epilogue."""
    schedule = _without_padding(schedule)
    blocks = read_blocks(schedule)
    if not 1 <= len(blocks) <= 2 or not is_static(blocks):
        return None
    reduction, last = blocks[0], blocks[-1]
    if not reduction.reduced or not is_plain_reduction(reduction) or reduction.body.init is None:
        return None
    if _is_product(reduction):
        return None
    if last is not reduction and not _is_epilogue(reduction, last):
        return None
    function = schedule.mod["main"]
    windows = _Windows(reduction, None if last is reduction else last, _plan(reduction, last, gpu))
    return nest.with_loops(function, windows.loops())


def _without_padding(schedule: s_tir.Schedule) -> s_tir.Schedule:
    """The schedule with the elementwise blocks before the reduction inlined, whatever they cost."""
    trial = schedule.copy()
    names = block_names(trial)
    blocks = [trial.get(trial.get_sblock(name)) for name in names]
    reduces = [
        any(variable.iter_type == tirx.IterVar.CommReduce for variable in block.iter_vars) for block in blocks
    ]
    if sum(reduces) != 1:
        return schedule
    for name in names[: reduces.index(True)]:
        trial.compute_inline(name)
    return trial


def _is_product(reduction: Block) -> bool:
    """Whether a reduction adds products of elements of two tensors."""
    value = reduction.body.body.value.b
    while isinstance(value, tirx.Cast):
        value = value.value
    if not isinstance(value, tirx.Mul):
        return False
    one, other = ({load.source for load in nest.loads_of(side)} for side in (value.a, value.b))
    return bool(one) and bool(other) and one != other


def _is_epilogue(reduction: Block, last: Block) -> bool:
    """Whether a block reads the reduction's results only at its own place."""
    if last.reduced or not isinstance(last.body.body, tirx.BufferStore):
        return False
    own, others = long_axes(last.axes), long_axes(reduction.spatial)
    if not same_sizes(own, others):
        return False
    buffer = reduction.body.body.buffer
    places = [
        [index for index in load.indices if not isinstance(index, tirx.IntImm)]
        for load in nest.loads_of(last.body.body.value)
        if load.source.same_as(buffer)
    ]
    return bool(places) and all(
        all(any(index.same_as(axis.var) for axis in last.axes) for index in indices)
        and [index for index in indices if any(index.same_as(axis.var) for axis in own)]
        == [axis.var for axis in own]
        for indices in places
    )


@dataclass(frozen=True)
class WindowsPlan:
    """How results are divided: elements of a vector, threads along results, and along the reduction."""

    lanes: int
    threads: int
    parts: int


def _plan(reduction: Block, last: Block, gpu: Gpu) -> WindowsPlan:
    steps = extent_of(reduction.reduced)
    results = extent_of(last.spatial)
    lanes = _lanes(reduction, last)
    wanted = gpu.multiprocessors * _THREADS
    while lanes > 1 and results // lanes < wanted and steps > _FEW:
        lanes //= 2
    parts = 1
    while parts * 2 * _PART <= steps and steps > _FEW and results // lanes * parts < wanted and parts < 32:
        parts *= 2
    threads = max(gpu.warp, _THREADS // parts)
    while threads > gpu.warp and -(-results // (lanes * threads)) < gpu.multiprocessors:
        threads //= 2
    return WindowsPlan(lanes, threads, parts)


def _lanes(reduction: Block, last: Block) -> int:
    """The longest vector that the store and every load of the reduction take as one access."""
    value, body = reduction.body.body.value.b, last.body.body
    loads = nest.loads_of(value)
    total = extent_of(last.spatial)
    index = tirx.Var("vector", nest.INDEX)
    for lanes in divisors(lanes_of([body.buffer])):
        analyzer = Analyzer()
        analyzer.bind(index, tvm.ir.Range(whole(0), whole(max(1, total // lanes))))
        memory = Memory(analyzer)
        for axis in reduction.reduced:
            analyzer.bind(axis.var, tvm.ir.Range(whole(0), whole(axis.extent)))
        if lanes == 1 or (
            total % lanes == 0
            and all(bits_of(load.source) * lanes <= 128 for load in loads)
            and memory.step(body.buffer, body.indices, Lane(last.spatial, index * lanes, analyzer), lanes)
            == 1
            and all(
                memory.step(
                    load.source, load.indices, Lane(reduction.spatial, index * lanes, analyzer), lanes
                )
                is not None
                for load in loads
            )
        ):
            return lanes
    return 1


@dataclass
class _Windows:
    """Writes the kernel."""

    reduction: Block
    last: Block | None
    plan: WindowsPlan
    memory: Memory = field(default_factory=lambda: Memory(Analyzer()))
    shared: list[Any] = field(default_factory=list)

    @property
    def _vectors(self) -> int:
        return extent_of(self.reduction.spatial) // self.plan.lanes

    def loops(self) -> tirx.Stmt:
        """The kernel."""
        plan = self.plan
        sizes = {
            "blockIdx.x": -(-self._vectors // plan.threads),
            "threadIdx.y": plan.parts,
            "threadIdx.x": plan.threads,
        }
        return self.memory.declared(kernel(sizes, self.memory.analyzer, self._of_thread, self.shared))

    def _of_thread(self, number: Any, part: Any, thread: Any) -> tirx.Stmt:
        plan, body = self.plan, self.reduction.body.body
        own = number * plan.threads + thread
        vector, is_own = own, None
        if self._vectors % plan.threads:
            vector, is_own = tirx.Min(own, whole(self._vectors - 1)), own < self._vectors
        sums = nest.registers((plan.lanes,), str(body.buffer.dtype), "sums")
        lanes = range(plan.lanes)
        initial = self.reduction.body.init.value
        return nest.sequence(
            nest.declare(sums),
            *(nest.store(sums, initial, whole(lane)) for lane in lanes),
            self._reduced(sums, vector, part),
            *self._joined(sums, part, thread),
            self._stored(sums, vector, is_own, part),
        )

    def _reduced(self, sums: Any, vector: Any, part: Any) -> tirx.Stmt:
        axes, parts = self.reduction.reduced, self.plan.parts
        if parts > 1:
            steps = extent_of(axes)

            def step(number: Any) -> tirx.Stmt:
                self._bind(number, -(-steps // parts))
                place = number * parts + part
                added = self._added(sums, vector, places_of(place, axes, self.memory.analyzer))
                return when(place < steps if steps % parts else None, added)

            return nest.serial(-(-steps // parts), step, nest.INDEX)

        def loop(position: int, places: Places) -> tirx.Stmt:
            if position == len(axes):
                return self._added(sums, vector, places)
            axis = axes[position]
            loops = nest.unrolled if extent_of(axes) <= _FEW else nest.serial

            def body(index: Any) -> tirx.Stmt:
                self._bind(index, axis.extent)
                return loop(position + 1, {**places, axis.var: index})

            return loops(axis.extent, body, nest.INDEX)

        return loop(0, {})

    def _bind(self, index: Any, extent: int) -> None:
        if isinstance(index, tirx.Var):
            self.memory.analyzer.bind(index, tvm.ir.Range(whole(0), whole(extent)))

    def _added(self, sums: Any, vector: Any, places: Places) -> tirx.Stmt:
        body, lanes = self.reduction.body.body, self.plan.lanes
        lane = Lane(self.reduction.spatial, vector * lanes, self.memory.analyzer, places)
        read = self.memory.vector(body.value.b, lane, lanes)
        combine = type(body.value)
        return nest.sequence(
            *read.loads,
            *(
                nest.store(sums, combine(sums[whole(number)], value), whole(number))
                for number, value in enumerate(read.values)
            ),
        )

    def _joined(self, sums: Any, part: Any, thread: Any) -> list[tirx.Stmt]:
        plan, combine = self.plan, type(self.reduction.body.body.value)
        if plan.parts == 1:
            return []
        kept = shared_tile(plan.parts, plan.threads * plan.lanes, 0, str(sums.dtype), "parts")
        self.shared.append(kept.buffer)

        def place(lane: int) -> Any:
            return thread * plan.lanes + lane

        def total(lane: int) -> Any:
            value = kept.load(whole(0), place(lane))
            for other in range(1, plan.parts):
                value = combine(value, kept.load(whole(other), place(lane)))
            return value

        lanes = range(plan.lanes)
        return [
            *(kept.store(sums[whole(lane)], part, place(lane)) for lane in lanes),
            barrier(),
            *(nest.store(sums, total(lane), whole(lane)) for lane in lanes),
        ]

    def _stored(self, sums: Any, vector: Any, is_own: Any, part: Any) -> tirx.Stmt:
        lanes, last = self.plan.lanes, self.last
        if last is None:
            lane = Lane(self.reduction.spatial, vector * lanes, self.memory.analyzer)
            result = Vector((), tuple(sums[whole(number)] for number in range(lanes)))
            body = self.reduction.body.body
        else:
            self.memory.registers[self.reduction.body.body.buffer] = lambda _at, number: sums[whole(number)]
            lane = Lane(last.axes, vector * lanes, self.memory.analyzer)
            body = last.body.body
            result = self.memory.vector(body.value, lane, lanes)
        conditions = [] if is_own is None else [is_own]
        conditions += [part < 1] if self.plan.parts > 1 else []
        statement = self.memory.stored(body.buffer, body.indices, result, lane)
        return when(tirx.all(*conditions) if conditions else None, statement)
