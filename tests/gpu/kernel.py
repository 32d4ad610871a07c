"""TIR statements: each becomes a function that executes it for the active lanes.

``Translator`` turns the body of a lowered function into such functions once; executing them needs no TIR.
``run_function`` executes a function: its host part calls its kernels one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tvm import ir, tirx

from tests.gpu import expressions as ex
from tests.gpu.faults import Fault, KernelFault
from tests.gpu.intrinsics import INTRINSICS, commit_group, wait_group
from tests.gpu.lanes import Batch, Clock, Lanes, Shape, Value, is_varying, pick, spread
from tests.gpu.memory import Fragments, GlobalArray, LocalArray, Pointer, SharedArray

Execute = Callable[[Lanes], None]
LANES_AT_ONCE = 1 << 15
MOST_THREADS, MOST_SHARED_BYTES = 1024, 232448  # sm_90, with the shared memory that a kernel can opt in to
_AXES = "xyz"


@dataclass(frozen=True)
class View:
    """A buffer: which memory it lies in, the type of its elements and how many form one of its own."""

    root: int
    name: str
    dtype: np.dtype
    width: int
    scope: str


@dataclass
class Kernel:
    """A region of thread axes: extents and variables of the axes, and what its threads execute."""

    extents: dict[str, ex.Evaluate] = field(default_factory=dict)
    axes: list[tuple[int, str]] = field(default_factory=list)
    body: Execute | None = None
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)


class Translator:
    """Translates statements and expressions of one function."""

    def __init__(self) -> None:
        self.slots: dict[Any, int] = {}
        self.views: dict[Any, View] = {}
        self.cells: dict[int, int] = {}
        self.kernel: Kernel | None = None

    def slot(self, variable: Any) -> int:
        return self.slots.setdefault(variable, len(self.slots))

    # Statements

    def statement(self, node: Any) -> Execute:
        name = type(node).__name__
        translate = getattr(self, f"_{name.lower()}", None)
        if translate is None:
            raise KernelFault(Fault.UNSUPPORTED, f"a statement {name}")
        execute: Execute = translate(node)
        if name in ("SeqStmt", "AttrStmt", "For", "IfThenElse", "While"):
            return execute

        def located(lanes: Lanes) -> None:
            lanes.batch.statement = node
            execute(lanes)

        return located

    def _seqstmt(self, node: Any) -> Execute:
        parts = [self.statement(part) for part in node.seq]

        def execute(lanes: Lanes) -> None:
            for part in parts:
                part(lanes)

        return execute

    def _evaluate(self, node: Any) -> Execute:
        return self.expression(node.value)  # type: ignore[return-value]

    def _bind(self, node: Any) -> Execute:
        slot, value = self.slot(node.var), self.expression(node.value)

        def execute(lanes: Lanes) -> None:
            result = value(lanes)
            lanes.batch.require_defined("the value of a variable")
            if isinstance(result, np.ndarray) and result.base is not None:
                result = result.copy()  # a row of registers may change later
            lanes.bind(slot, result)

        return execute

    def _for(self, node: Any) -> Execute:
        slot, start, extent = (
            self.slot(node.loop_var),
            self.expression(node.min),
            self.expression(node.extent),
        )
        step = self.expression(node.step) if node.step is not None else lambda _: 1
        body = self.statement(node.body)

        def execute(lanes: Lanes) -> None:
            first, count, stride = start(lanes), extent(lanes), step(lanes)
            if not is_varying(first) and not is_varying(count):
                for place in range(int(first), int(first) + int(count), int(stride)):
                    lanes.bind(slot, place)
                    body(lanes)
                return
            number, end = 0, spread(count, lanes.count)
            while (going := number < end).any():
                active = lanes.where(going)
                active.bind(slot, pick(first, active.picked) + number)
                body(active)
                number += int(stride)

        return execute

    def _while(self, node: Any) -> Execute:
        condition, body = self.expression(node.condition), self.statement(node.body)

        def execute(lanes: Lanes) -> None:
            while True:
                going = spread(condition(lanes), lanes.count)
                if not going.any():
                    return
                if not going.all():
                    lanes = lanes.where(going)
                body(lanes)

        return execute

    def _ifthenelse(self, node: Any) -> Execute:
        condition, then = self.expression(node.condition), self.statement(node.then_case)
        otherwise = self.statement(node.else_case) if node.else_case is not None else None

        def execute(lanes: Lanes) -> None:
            holds = condition(lanes)
            lanes.batch.require_defined("a condition")
            if not is_varying(holds) or holds.all() or not holds.any():
                if np.all(holds):
                    then(lanes)
                elif otherwise is not None:
                    otherwise(lanes)
                return
            then(lanes.where(holds))
            if otherwise is not None:
                otherwise(lanes.where(~holds))

        return execute

    def _assertstmt(self, node: Any) -> Execute:
        return lambda _: None

    def _bufferstore(self, node: Any) -> Execute:
        view, index, value = self.views[node.buffer], self._index(node), self.expression(node.value)
        root, dtype = view.root, view.dtype
        self._touch(root, "written")

        def execute(lanes: Lanes) -> None:
            batch = lanes.batch
            place = index(lanes)
            batch.require_defined("an index")
            stored, memory = value(lanes), batch.memory[root]
            if not isinstance(memory, LocalArray):
                batch.require_defined("a value to store")
            memory.write(lanes, place, stored, dtype)

        return execute

    def _declbuffer(self, node: Any) -> Execute:
        assert ex.is_call(node.data, "buffer_data")
        outer = self.views[node.data.args[0]]
        self.declare(node.buffer, outer.root)
        return lambda _: None

    def _allocbuffer(self, node: Any) -> Execute:
        buffer = node.buffer
        view = self.declare(buffer, self.slot(buffer))
        scope, root = view.scope, view.root
        size, on_host = self.expression(_product(buffer.shape)), self.kernel is None

        def execute(lanes: Lanes) -> None:
            memory, batch, count = lanes.batch.memory, lanes.batch, int(size(lanes)) * view.width
            if on_host != (scope == "global"):
                raise KernelFault(Fault.OUTSIDE, f"{view.name} is allocated as {scope}")
            if on_host:
                memory[root] = GlobalArray(view.name, np.zeros(count, view.dtype), known=False)
            elif scope in ("local", "warp"):  # TVM declares an array of a warp in each lane, too
                memory[root] = LocalArray(view.name, count, view.dtype, batch)
            elif scope.startswith("wmma."):
                memory[root] = Fragments(view.name, batch.blocks * batch.shape.warps)
            elif scope not in ("shared", "shared.dyn"):
                raise KernelFault(Fault.UNSUPPORTED, f"memory {scope}")
            elif root not in memory:
                memory[root] = SharedArray(view.name, count * view.dtype.itemsize, self.cells[root], batch)

        return execute

    def declare(self, buffer: Any, root: int) -> View:
        dtype, width = ex.element_type(str(buffer.dtype))
        view = View(root, str(buffer.name), dtype, width, str(buffer.scope()))
        self.views[buffer] = view
        self.cells[root] = min(self.cells.get(root, dtype.itemsize), dtype.itemsize)
        return view

    def _touch(self, root: int, *how: str) -> None:
        if self.kernel is not None:
            for kind in how:
                getattr(self.kernel, kind).add(root)

    # Kernels

    def _attrstmt(self, node: Any) -> Execute:
        if node.attr_key == "async_commit_queue_scope":
            return self._committed(self.statement(node.body))
        if node.attr_key == "async_wait_queue_scope":
            return self._waited(self.expression(node.body.value), self.statement(node.body.body))
        if node.attr_key != "thread_extent":
            return self.statement(node.body)
        if self.kernel is not None:
            self._thread_axis(node, self.kernel)
            return self.statement(node.body)
        kernel = self.kernel = Kernel()
        self._thread_axis(node, kernel)
        kernel.body = self.statement(node.body)
        self.kernel = None
        return partial(launch, kernel, self)

    @staticmethod
    def _committed(body: Execute) -> Execute:
        """TVM's code generator commits the copies of the body as one group after it."""

        def execute(lanes: Lanes) -> None:
            body(lanes)
            commit_group(lanes)

        return execute

    @staticmethod
    def _waited(in_flight: ex.Evaluate, body: Execute) -> Execute:
        """TVM's code generator waits before the body, until only so many groups are on their way."""

        def execute(lanes: Lanes) -> None:
            wait_group(lanes, int(in_flight(lanes)))
            body(lanes)

        return execute

    def _thread_axis(self, node: Any, kernel: Kernel) -> None:
        tag = str(node.node.thread_tag)
        kernel.extents.setdefault(tag, self.expression(node.value))
        kernel.axes.append((self.slot(node.node.var), tag))

    # Expressions

    def expression(self, node: Any) -> ex.Evaluate:
        name = type(node).__name__
        if name in ex.BINARY:
            return self._binary(node, ex.BINARY[name])
        translate = getattr(self, f"_{name.lower()}_value", None)
        if translate is None:
            raise KernelFault(Fault.UNSUPPORTED, f"an expression {name}")
        result: ex.Evaluate = translate(node)
        return result

    def _binary(self, node: Any, function: Callable[[Value, Value, np.dtype], Value]) -> ex.Evaluate:
        one, other = self.expression(node.a), self.expression(node.b)
        operands, (result, _) = ex.type_of(node.a)[0], ex.type_of(node)

        def evaluate(lanes: Lanes) -> Value:
            return ex.settle(function(one(lanes), other(lanes), operands), result)

        return evaluate

    def _intimm_value(self, node: Any) -> ex.Evaluate:
        return ex.constant(node)

    def _floatimm_value(self, node: Any) -> ex.Evaluate:
        return ex.constant(node)

    def _stringimm_value(self, node: Any) -> ex.Evaluate:
        text = str(node.value)
        return lambda _: text

    def _var_value(self, node: Any) -> ex.Evaluate:
        slot = self.slot(node)
        return lambda lanes: lanes.lookup(slot)

    def _cast_value(self, node: Any) -> ex.Evaluate:
        value, (dtype, _) = self.expression(node.value), ex.type_of(node)
        return lambda lanes: ex.cast(value(lanes), dtype)

    def _not_value(self, node: Any) -> ex.Evaluate:
        value = self.expression(node.a)

        def evaluate(lanes: Lanes) -> Value:
            result = value(lanes)
            return ~result if isinstance(result, np.ndarray) else not result

        return evaluate

    def _bitwisenot_value(self, node: Any) -> ex.Evaluate:
        value = self.expression(node.a)
        return lambda lanes: ~value(lanes)

    def _and_value(self, node: Any) -> ex.Evaluate:
        return partial(ex.both, one=self.expression(node.a), other=self.expression(node.b), stop=False)

    def _or_value(self, node: Any) -> ex.Evaluate:
        return partial(ex.both, one=self.expression(node.a), other=self.expression(node.b), stop=True)

    def _select_value(self, node: Any) -> ex.Evaluate:
        return self.choice(node, node.condition, node.true_value, node.false_value)

    def choice(self, node: Any, condition: Any, yes: Any, no: Any) -> ex.Evaluate:
        holds, one, other = self.expression(condition), self.expression(yes), self.expression(no)
        dtype, _ = ex.type_of(node)
        return lambda lanes: ex.branch(lanes, holds(lanes), one, other, dtype)

    def _let_value(self, node: Any) -> ex.Evaluate:
        slot, value, body = self.slot(node.var), self.expression(node.value), self.expression(node.body)

        def evaluate(lanes: Lanes) -> Value:
            lanes.bind(slot, value(lanes))
            return body(lanes)

        return evaluate

    def _ramp_value(self, node: Any) -> ex.Evaluate:
        base, stride = self.expression(node.base), self.expression(node.stride)
        steps = np.arange(int(node.lanes), dtype=ex.type_of(node)[0])

        def evaluate(lanes: Lanes) -> Value:
            return _column(base(lanes)) + _column(stride(lanes)) * steps

        return evaluate

    def _broadcast_value(self, node: Any) -> ex.Evaluate:
        value, (dtype, width) = self.expression(node.value), ex.type_of(node)

        def evaluate(lanes: Lanes) -> Value:
            column = _column(value(lanes))
            return np.broadcast_to(np.asarray(column, dtype), (len(column), width))

        return evaluate

    def _shuffle_value(self, node: Any) -> ex.Evaluate:
        vectors = [self.expression(vector) for vector in node.vectors]
        picks = [self.expression(index) for index in node.indices]

        def evaluate(lanes: Lanes) -> Value:
            columns = [_column(spread(vector(lanes), lanes.count)) for vector in vectors]
            chosen = np.concatenate(columns, axis=1)[:, [int(index(lanes)) for index in picks]]
            return chosen[:, 0] if len(picks) == 1 else chosen

        return evaluate

    def _tensorload_value(self, node: Any) -> ex.Evaluate:
        view, index = self.views[node.source], self._index(node)
        root, dtype = view.root, view.dtype
        self._touch(root, "read")
        return lambda lanes: lanes.batch.memory[root].read(lanes, index(lanes), dtype)

    _bufferload_value = _tensorload_value

    def _index(self, node: Any) -> ex.Evaluate:
        """The index of a load or a store, in elements of the scalar type."""
        buffer = node.source if hasattr(node, "source") else node.buffer
        assert len(node.indices) == 1, "FlattenBuffer leaves one index"
        index, width = self.expression(node.indices[0]), self.views[buffer].width
        if width == 1:
            return index
        steps = np.arange(width)
        return lambda lanes: _column(index(lanes)) * width + steps

    def _call_value(self, node: Any) -> ex.Evaluate:
        name = ex.call_name(node)
        if name in INTRINSICS:
            return INTRINSICS[name](self, node)
        if name in ("call_pure_extern", "call_extern"):
            name = ex.EXTERNAL.get(str(node.args[0].value), name)
            arguments = [self.expression(argument) for argument in node.args[1:]]
        else:
            arguments = [self.expression(argument) for argument in node.args]
        dtype = ex.type_of(node)[0] if name in ex.UNARY or name in ex.CALLS_OF_TWO else None
        function: Any = ex.UNARY.get(name) or ex.CALLS_OF_TWO.get(name)
        if function is None or dtype is None:
            raise KernelFault(Fault.UNSUPPORTED, f"a call of {name}")
        return lambda lanes: ex.settle(function(*(argument(lanes) for argument in arguments)), dtype)

    # Pointers, for intrinsics

    def view(self, data: Any) -> View:
        """The buffer whose data a pointer is."""
        buffer = data.args[0] if ex.is_call(data, "buffer_data") else data
        if buffer not in self.views:
            raise KernelFault(Fault.UNSUPPORTED, f"a pointer {data}")
        return self.views[buffer]

    def pointer(self, node: Any, offset: Any = None) -> Callable[[Lanes], Pointer]:
        """A pointer as a memory, an index in elements, and their type. It can be read and written."""
        if ex.is_call(node, "cuda.cvta_generic_to_shared"):
            return self.pointer(node.args[0], offset)
        if ex.is_call(node, "tvm_access_ptr"):
            marker, data, start = node.args[0], node.args[1], self.expression(node.args[2])
            dtype = ex.type_of(marker)[0]
            root = self.view(data).root
        elif ex.is_call(node, "address_of"):
            view, start = self.views[node.args[0].source], self._index(node.args[0])
            root, dtype = view.root, view.dtype
        else:
            view = self.view(node)
            root, dtype, start = view.root, view.dtype, lambda _: 0
        self._touch(root, "read", "written")
        more = self.expression(offset) if offset is not None else lambda _: 0
        return lambda lanes: (lanes.batch.memory[root], start(lanes) + more(lanes), dtype)

    def registers(self, nodes: list[Any]) -> list[tuple[View, ex.Evaluate]]:
        """Registers that an instruction writes, named as loads of elements of local arrays."""
        return [(self.views[node.source], self._index(node)) for node in nodes]

    @staticmethod
    def write_registers(lanes: Lanes, targets: list[tuple[View, ex.Evaluate]], values: np.ndarray) -> None:
        """Write a register of 32 bits of each lane after the other."""
        columns = np.ascontiguousarray(values).view(np.uint32)
        for place, (view, index) in enumerate(targets):
            column = np.ascontiguousarray(columns[:, place]).view(view.dtype)
            lanes.batch.memory[view.root].write(lanes, index(lanes), column, view.dtype)


def launch(kernel: Kernel, translator: Translator, host: Lanes) -> None:
    """Execute a kernel: its blocks in batches, the blocks of a batch in lockstep."""

    def extent(kind: str) -> tuple[int, int, int]:
        x, y, z = (
            int(kernel.extents[f"{kind}.{axis}"](host)) if f"{kind}.{axis}" in kernel.extents else 1
            for axis in _AXES
        )
        return x, y, z

    shape = Shape(extent("threadIdx"), extent("blockIdx"))
    _check_limits(shape)
    clock = Clock(shape)
    arrays = {root: memory for root, memory in host.batch.memory.items() if isinstance(memory, GlobalArray)}
    for root, array in arrays.items():
        array.start_kernel(clock, root in kernel.written, root in kernel.read)
    size = max(1, LANES_AT_ONCE // shape.threads)
    for first in range(0, shape.blocks, size):
        batch = Batch(shape, clock, first, min(size, shape.blocks - first), dict(arrays))
        lanes = Lanes(batch, np.arange(batch.count))
        lanes.values.update(host.values)
        coordinates = _coordinates(shape, lanes)
        for slot, tag in kernel.axes:
            lanes.bind(slot, coordinates[tag])
        assert kernel.body is not None
        try:
            kernel.body(lanes)
            _check_shared(batch)
        except KernelFault as fault:
            fault.statement = fault.statement or batch.statement
            raise
    for array in arrays.values():
        array.end_kernel()


def _coordinates(shape: Shape, lanes: Lanes) -> dict[str, Value]:
    block, thread = np.divmod(lanes.numbers.astype(np.int32), np.int32(shape.threads))
    result: dict[str, Value] = {}
    for kind, number, extents in (("threadIdx", thread, shape.block), ("blockIdx", block, shape.grid)):
        for axis, extent in zip(_AXES, extents, strict=True):
            result[f"{kind}.{axis}"] = number % extent if extent > 1 else 0
            number = number // extent
    return result


def _check_limits(shape: Shape) -> None:
    if shape.threads > MOST_THREADS or shape.block[2] > 64:
        raise KernelFault(Fault.LIMIT, f"a block of {shape.block} threads")
    if max(shape.grid[1:]) > 65535:
        raise KernelFault(Fault.LIMIT, f"a grid of {shape.grid} blocks")


def _check_shared(batch: Batch) -> None:
    used = sum(memory.size for memory in batch.memory.values() if isinstance(memory, SharedArray))
    if used > MOST_SHARED_BYTES:
        raise KernelFault(Fault.LIMIT, f"{used} bytes of shared memory")


def run_function(function: Any, arguments: Iterable[np.ndarray | int], inputs: int) -> None:
    """Execute a lowered function in place: the first ``inputs`` arguments are read, others written."""
    translator = Translator()
    batch = Batch(Shape((1, 1, 1), (1, 1, 1)), Clock(Shape((1, 1, 1), (1, 1, 1))), 0, 1)
    host = Lanes(batch, np.arange(1))
    for number, (parameter, argument) in enumerate(zip(function.params, arguments, strict=True)):
        _bind_argument(translator, host, parameter, argument, number < inputs)
    with np.errstate(all="ignore"):
        translator.statement(function.body)(host)
    for parameter in function.params:
        memory = batch.memory.get(translator.slot(parameter))
        if memory is not None and memory.known is not None and not memory.known.all():
            count = int((~memory.known).sum())
            first = int(np.argmin(memory.known))
            raise KernelFault(
                Fault.UNWRITTEN,
                f"{count} elements of {memory.name}, the first of them {first}, are never written",
            )


def _bind_argument(
    translator: Translator, host: Lanes, parameter: Any, argument: np.ndarray | int, known: bool
) -> None:
    slot = translator.slot(parameter)
    if not isinstance(argument, np.ndarray):
        host.bind(slot, argument)
        return
    translator.declare(parameter, slot)
    host.batch.memory[slot] = GlobalArray(str(parameter.name), argument, known)
    for extent, size in zip(parameter.shape, argument.shape, strict=True):
        if isinstance(extent, ir.Var):
            host.bind(translator.slot(extent), size)


def _product(shape: Iterable[Any]) -> Any:
    result: Any = None
    for extent in shape:
        result = extent if result is None else tirx.Mul(result, extent)
    return result


def _column(value: Value) -> np.ndarray:
    array = np.asarray(value)
    return array if array.ndim == 2 else array.reshape(-1, 1)
