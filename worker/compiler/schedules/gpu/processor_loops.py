"""Loops that were written for processors (scans, scatters, recurrent layers) as kernels.

Legalization and translation write such functions with parallel, vectorized and plain loops. Each statement
of a function becomes one kernel, in order::

    for parallel task in tasks: body                for block, thread: if task < tasks: body
    for i in n: body                        →       one thread: for i in n: body
    together: for step: for divided i: body         one block: for step: for part: body(part); barrier

With ``LANES`` the threads of a block are the lanes of the vectors instead: each task is a block, and a vector
as wide as a layer is a row of threads, which meet after each store to memory::

    for parallel task: for step:                    for block = task, thread = lane: for step:
        sums[lanes] = ...                   →           sums = ...                            # a register
        state[lanes] = f(sums[lanes])                   state[lane] = f(sums); barrier

Workspaces of a task become memory of its thread, or of the GPU if the lanes are threads: one for each task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import LANES
from worker.compiler.schedules.gpu.chips import Gpu
from worker.compiler.schedules.gpu.threads import barrier, kernel, when, whole

_TOGETHER = "pragma_parallel_launch_point"
_DIVIDED = "pragma_parallel_barrier_when_finish"
_THREADS = 128
_MOST_THREADS = 1024
_REFUSED = ("tvm_call_packed", "tvm_call_cpacked", "call_llvm_intrin", "call_llvm_pure_intrin")


def from_processor_loops(function: tirx.PrimFunc, gpu: Gpu) -> tirx.PrimFunc | None:
    """The function with its loops bound to threads; None if it calls what only processors support."""
    if calls_of(function):
        return None
    body = function.body
    root = body.block if isinstance(body, s_tir.SBlockRealize) else None
    statements = _statements(body if root is None else root.body)
    if any(_is_bound(statement) for statement in statements):
        return function
    lanes = int(function.attrs.get(LANES, 0)) if function.attrs else 0
    write = _Lanes(lanes).kernels if lanes else _kernels
    loops = nest.sequence(*write(statements, gpu))
    return nest.with_loops(function, loops) if root is None else function.with_body(_with_body(body, loops))


def calls_of(function: tirx.PrimFunc) -> tuple[str, ...]:
    """The calls of a function that only processors support, such as a sort of TVM's runtime."""
    found: dict[str, None] = {}

    def visit(call: Any) -> None:
        name = str(getattr(call.op, "name", ""))
        if any(name.endswith(refused) for refused in _REFUSED):
            first = call.args[0] if call.args else None
            found[str(first.value) if isinstance(first, tvm.ir.StringImm) else name] = None

    tvm_ffi.structural_walk(function.body, (tvm.ir.Call, visit))
    return tuple(found)


def _with_body(realize: Any, loops: tirx.Stmt) -> Any:
    block = realize.block
    root = s_tir.SBlock([], [], [], block.name_hint, loops)
    return s_tir.SBlockRealize([], tirx.IntImm("bool", 1), root)


def _statements(body: tirx.Stmt) -> list[tirx.Stmt]:
    if isinstance(body, tirx.SeqStmt):
        return [statement for part in body.seq for statement in _statements(part)]
    return [body]


def _is_bound(statement: tirx.Stmt) -> bool:
    found: list[bool] = []

    def visit(loop: Any) -> None:
        found.append(loop.kind == tirx.ForKind.THREAD_BINDING)

    tvm_ffi.structural_walk(statement, (tirx.For, visit))
    return any(found)


def _kernels(statements: list[tirx.Stmt], _gpu: Gpu) -> list[tirx.Stmt]:
    return [
        statement if isinstance(statement, tirx.AllocBuffer) else _kernel(statement)
        for statement in statements
    ]


def _kernel(statement: tirx.Stmt) -> tirx.Stmt:
    analyzer = Analyzer()
    if isinstance(statement, tirx.AttrStmt) and str(statement.attr_key) == _TOGETHER:
        threads = min(_MOST_THREADS, max(_widest(statement.body), 32))

        def together(_block: Any, thread: Any) -> tirx.Stmt:
            return _own(_divided(statement.body, thread, threads))

        return kernel({"blockIdx.x": 1, "threadIdx.x": threads}, analyzer, together)
    loop = statement
    if isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.PARALLEL:
        count = _number(loop.extent)
        threads = min(_THREADS, count)

        def task(block: Any, thread: Any) -> tirx.Stmt:
            index = block * threads + thread
            body = nest.substitute(_own(loop.body), {loop.loop_var: _cast(index, loop.loop_var)})
            return when(index < count if count % threads else None, body)

        return kernel({"blockIdx.x": -(-count // threads), "threadIdx.x": threads}, analyzer, task)

    def alone(_block: Any, _thread: Any) -> tirx.Stmt:
        return _own(statement)

    return kernel({"blockIdx.x": 1, "threadIdx.x": 1}, analyzer, alone)


def _widest(body: tirx.Stmt) -> int:
    extents = [1]

    def visit(loop: Any) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            extents.append(_number(loop.extent))

    tvm_ffi.structural_walk(body, (tirx.For, visit))
    return max(extents)


def _divided(body: tirx.Stmt, thread: Any, threads: int) -> tirx.Stmt:
    """A statement of all threads; they take turns in its divided loops and meet after them."""

    def divide(statement: Any) -> Any:
        loop = statement.body
        if str(statement.attr_key) != _DIVIDED or not isinstance(loop, tirx.For):
            return statement
        count = _number(loop.extent)

        def part(number: Any) -> tirx.Stmt:
            index = number * threads + thread
            own = nest.substitute(loop.body, {loop.loop_var: _cast(index, loop.loop_var)})
            return when(index < count if count % threads else None, own)

        return nest.sequence(nest.serial(-(-count // threads), part, nest.INDEX), barrier())

    return tvm_ffi.structural_map(body, (tirx.AttrStmt, divide))


def _own(body: tirx.Stmt) -> tirx.Stmt:
    """A thread's statement: its loops are plain ones, its buffers its own."""
    buffers: dict[Any, Any] = {}

    def collect(allocation: Any) -> None:
        buffer = allocation.buffer
        if str(buffer.scope()) == "global":
            buffers[buffer] = tirx.decl_buffer(buffer.shape, str(buffer.dtype), buffer.name, scope="local")

    tvm_ffi.structural_walk(body, (tirx.AllocBuffer, collect))
    return _with_buffers(_plain(body), buffers)


def _plain(body: tirx.Stmt) -> tirx.Stmt:
    def plain(loop: Any) -> Any:
        if loop.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED):
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return tvm_ffi.structural_map(body, (tirx.For, plain))


def _with_buffers(body: tirx.Stmt, buffers: dict[Any, Any]) -> tirx.Stmt:
    if not buffers:
        return body

    def load(one: Any) -> Any:
        return buffers[one.source][tuple(one.indices)] if one.source in buffers else one

    def store(one: Any) -> Any:
        return nest.store(buffers[one.buffer], one.value, *one.indices) if one.buffer in buffers else one

    def allocate(one: Any) -> Any:
        return nest.declare(buffers[one.buffer]) if one.buffer in buffers else one

    return tvm_ffi.structural_map(
        body, ((TensorLoad, load), (tirx.BufferStore, store), (tirx.AllocBuffer, allocate))
    )


def _cast(index: Any, variable: Any) -> Any:
    return index.astype(nest.dtype_of(variable))


def _number(extent: Any) -> int:
    if not isinstance(extent, tirx.IntImm):
        raise ValueError("the loops of a GPU have fixed sizes")
    return int(extent)


@dataclass
class _Lanes:
    """Writes kernels whose threads are the lanes of vectors."""

    lanes: int
    _registers: dict[Any, Any] = field(default_factory=dict)

    def kernels(self, statements: list[tirx.Stmt], _gpu: Gpu) -> list[tirx.Stmt]:
        """One kernel for each statement."""
        made: list[tirx.Stmt] = []
        for statement in statements:
            if isinstance(statement, tirx.AllocBuffer):
                made.append(statement)
                continue
            loop = statement
            is_parallel = isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.PARALLEL
            count = _number(loop.extent) if is_parallel else 1

            def task(block: Any, thread: Any, loop: Any = loop, is_parallel: bool = is_parallel) -> tirx.Stmt:
                body = loop
                if is_parallel:
                    body = nest.substitute(loop.body, {loop.loop_var: _cast(block, loop.loop_var)})
                return self._of_thread(body, thread)

            made.append(kernel({"blockIdx.x": count, "threadIdx.x": self.lanes}, Analyzer(), task))
        return made

    def _of_thread(self, body: tirx.Stmt, thread: Any) -> tirx.Stmt:
        if isinstance(body, tirx.SeqStmt):
            return nest.sequence(*(self._of_thread(part, thread) for part in body.seq))
        if isinstance(body, tirx.For) and body.kind == tirx.ForKind.VECTORIZED:
            return self._vector(body, thread)
        if isinstance(body, tirx.For):
            if not _has_vectors(body):
                return self._alone(body, thread)
            inner = self._of_thread(body.body, thread)
            return tirx.For(body.loop_var, body.min, body.extent, tirx.ForKind.SERIAL, inner)
        if isinstance(body, tirx.AllocBuffer) and str(body.buffer.scope()) == "local":
            return nest.declare(self._narrow(body.buffer))
        return body

    def _narrow(self, buffer: Any) -> Any:
        """The registers of one lane, which a thread holds."""
        if buffer not in self._registers:
            shape = (*buffer.shape[:-1], 1)
            self._registers[buffer] = nest.registers(shape, str(buffer.dtype), buffer.name)
        return self._registers[buffer]

    def _alone(self, loop: Any, thread: Any) -> tirx.Stmt:
        """A loop of single elements: its iterations are divided among the threads."""
        count = _number(loop.extent)

        def part(number: Any) -> tirx.Stmt:
            index = number * self.lanes + thread
            inner = nest.substitute(loop.body, {loop.loop_var: _cast(index, loop.loop_var)})
            return when(index < count if count % self.lanes else None, _plain(inner))

        return nest.sequence(nest.serial(-(-count // self.lanes), part, nest.INDEX), barrier())

    def _vector(self, loop: Any, thread: Any) -> tirx.Stmt:
        """A statement of each lane's thread; the threads meet where it has written to memory."""
        count, lane = _number(loop.extent), loop.loop_var
        body = nest.substitute(self._in_registers(loop.body, lane), {lane: _cast(thread, lane)})
        statement = when(thread < count if count < self.lanes else None, body)
        return nest.sequence(statement, barrier()) if _writes_memory(loop.body) else statement

    def _in_registers(self, body: tirx.Stmt, lane: Any) -> tirx.Stmt:
        """A statement whose vectors in registers have one lane: each thread holds its own."""

        def place(indices: Any) -> list[Any]:
            *outer, last = indices
            assert last.same_as(lane)
            return [*outer, whole(0)]

        def load(one: Any) -> Any:
            return (
                self._narrow(one.source)[tuple(place(one.indices))]
                if str(one.source.scope()) == "local"
                else one
            )

        def store(one: Any) -> Any:
            if str(one.buffer.scope()) != "local":
                return one
            return nest.store(self._narrow(one.buffer), one.value, *place(one.indices))

        return tvm_ffi.structural_map(body, ((TensorLoad, load), (tirx.BufferStore, store)))


def _has_vectors(body: tirx.Stmt) -> bool:
    found: list[bool] = []

    def visit(loop: Any) -> None:
        found.append(loop.kind == tirx.ForKind.VECTORIZED)

    tvm_ffi.structural_walk(body, (tirx.For, visit))
    return any(found)


def _writes_memory(body: tirx.Stmt) -> bool:
    found: list[bool] = []

    def visit(store: Any) -> None:
        found.append(str(store.buffer.scope()) != "local")

    tvm_ffi.structural_walk(body, (tirx.BufferStore, visit))
    return any(found)
