"""Reads the calls of a lowered Relax function whose sizes are all fixed, and places its memory in one arena.

::

    storage = vm.alloc_storage(4096)             arena        [0, 4096)   [4096, 5120)
    a = vm.alloc_tensor(storage, 0, ...)         tensors      a at 0      b at 4096
    conv(x, weight, a)                    →      calls        conv: x, weight, a
    b = vm.alloc_tensor(other, 0, ...)                        pool: a, b
    pool(a, b)                                   outputs      b
    return b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

import tvm
from tvm import relax

from worker.candidates.library import INPUT_CHECK, PARAMETER

ALIGNMENT = 64
"""Bytes. Kernels load whole cache lines from a tensor's start."""

_CHECKS = frozenset({"vm.builtin.check_tensor_info", "vm.builtin.match_shape"})
"""Calls that check the types of inputs. A plan drops them: C passes inputs as untyped memory."""

_VIEWS = frozenset({"vm.builtin.reshape", "vm.builtin.ensure_zero_offset"})
_NOTHING = frozenset({"relax.vm.kill_object", "relax.null_value"})
"""Calls that a plan drops: it frees a tensor's memory after its last use, and sizes need no heap."""


class NotPlannableError(Exception):
    """The function does more than call kernels on tensors of fixed sizes; the message says what."""


class Memory(Enum):
    """Where a tensor lies."""

    ARENA = "arena"
    PARAMETER = "parameter"
    INPUT = "input"


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor: ``number`` is the byte in the arena, or the index of the parameter or input."""

    memory: Memory
    number: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class PlannedCall:
    """A call of a kernel; ``arguments`` are indices of tensors."""

    function: str
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class CallPlan:
    """All calls of one run.

    Attributes:
        tensors: the tensors that calls, inputs and outputs use.
        calls: the calls in order.
        inputs: indices of the tensors that the caller passes.
        outputs: indices of the tensors that the caller gets.
        direct: the outputs, by position, whose memory no other tensor shares: kernels can write them where
            the caller wants them.
        arena_bytes: the size of the memory that one run works in.
    """

    tensors: tuple[PlannedTensor, ...]
    calls: tuple[PlannedCall, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    direct: frozenset[int]
    arena_bytes: int

    @property
    def argument_count(self) -> int:
        """The arguments of all calls together."""
        return sum(len(call.arguments) for call in self.calls)


class Block(NamedTuple):
    """Memory that is in use from the call ``first`` to the call ``last``, both included."""

    size: int
    first: int
    last: int


def place_blocks(blocks: tuple[Block, ...]) -> tuple[tuple[int, ...], int]:
    """Place blocks in one arena, so that no two that are in use at the same time overlap.

    Places the largest first, each in the smallest gap that holds it: "Greedy by Size for Offset Calculation"
    in Pisarchyk and Lee 2020, Efficient Memory Management for Deep Neural Net Inference, section 5.

    Returns:
        The first byte of each block, and the size of the arena in bytes.
    """
    starts: dict[int, int] = {}
    for index in sorted(range(len(blocks)), key=lambda one: (-blocks[one].size, blocks[one].first)):
        block = blocks[index]
        taken = sorted(
            (starts[other], starts[other] + _aligned(blocks[other].size))
            for other in starts
            if blocks[other].first <= block.last and block.first <= blocks[other].last
        )
        starts[index] = _smallest_gap(taken, block.size)
    size = max((starts[index] + _aligned(block.size) for index, block in enumerate(blocks)), default=0)
    return tuple(starts[index] for index in range(len(blocks))), size


def _smallest_gap(taken: list[tuple[int, int]], size: int) -> int:
    end = 0
    gaps = []
    for start, after in taken:
        if start - end >= size:
            gaps.append((start - end, end))
        end = max(end, after)
    return min(gaps)[1] if gaps else end


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan_calls(function: relax.Function, workspaces: Mapping[str, tuple[int, ...]] = {}) -> CallPlan:
    """Read the calls of a function and place its memory.

    Args:
        function: lowered to the virtual machine's calls, its constants taken out; see ``take_parameters``.
        workspaces: bytes of the buffers that a call of a kernel uses besides its arguments, by the kernel's
            name. They follow the call's arguments as tensors of bytes.

    Raises:
        NotPlannableError: the function has sizes that depend on inputs, branches, loops, or calls of the
            runtime.
    """
    reader = _Reader(workspaces)
    for parameter in function.params:
        reader.add_input(parameter)
    for binding in _bindings(function.body):
        reader.read(binding)
    return reader.plan(function.body.body if isinstance(function.body, relax.SeqExpr) else function.body)


def _bindings(body: relax.Expr) -> Iterator[relax.Binding]:
    if isinstance(body, relax.SeqExpr):
        for block in body.blocks:
            yield from block.bindings


@dataclass(frozen=True)
class _InStorage:
    """A tensor in a storage, before storages are placed."""

    storage: int
    byte: int
    shape: tuple[int, ...]
    dtype: str


@dataclass
class _Reader:
    workspaces: Mapping[str, tuple[int, ...]]
    tensors: list[PlannedTensor | _InStorage] = field(default_factory=list)
    calls: list[PlannedCall] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """Bytes of each storage."""
    uses: dict[int, list[int]] = field(default_factory=dict)
    """The calls that use each storage."""
    values: dict[relax.Var, tuple[int, ...] | int] = field(default_factory=dict)
    """The tensor of each variable, or the tensors of a tuple."""
    storages: dict[relax.Var, int] = field(default_factory=dict)

    def add_input(self, variable: relax.Var) -> None:
        self.inputs.append(self._add(variable, self._outside(variable, Memory.INPUT, len(self.inputs))))

    def read(self, binding: relax.Binding) -> None:
        value, variable = getattr(binding, "value", None), binding.var
        if isinstance(value, relax.Call):
            self._read_call(variable, value)
        elif isinstance(value, relax.Var) and value in self.values:
            self.values[variable] = self.values[value]
        elif isinstance(value, relax.Tuple):
            self.values[variable] = self._fields(value)
        elif isinstance(value, relax.TupleGetItem):
            self.values[variable] = self._tensors_of(value.tuple_value)[int(value.index)]
        else:
            raise NotPlannableError(f"it computes {type(value).__name__}")

    def plan(self, result: relax.Expr) -> CallPlan:
        outputs = self._tensors_of(result)
        for output in outputs:
            self._use(output, len(self.calls))
        blocks = tuple(
            Block(size, min(self.uses.get(index, [0])), max(self.uses.get(index, [0])))
            for index, size in enumerate(self.sizes)
        )
        starts, arena_bytes = place_blocks(blocks)
        return CallPlan(
            tensors=tuple(_placed(tensor, starts) for tensor in self.tensors),
            calls=tuple(self.calls),
            inputs=tuple(self.inputs),
            outputs=outputs,
            direct=frozenset(self._direct(outputs)),
            arena_bytes=arena_bytes,
        )

    def _direct(self, outputs: tuple[int, ...]) -> Iterator[int]:
        shared = Counter(tensor.storage for tensor in self.tensors if isinstance(tensor, _InStorage))
        for position, output in enumerate(outputs):
            tensor = self.tensors[output]
            if isinstance(tensor, _InStorage) and shared[tensor.storage] == 1 and outputs.count(output) == 1:
                yield position

    def _read_call(self, variable: relax.Var, call: relax.Call) -> None:
        if isinstance(call.op, tvm.ir.GlobalVar):
            self._read_kernel(str(call.op.name_hint), call)
        elif isinstance(call.op, relax.ExternFunc):
            self._read_runtime(str(call.op.global_symbol), variable, call)
        elif call.op.name == "relax.call_packed":
            self._read_runtime(str(call.args[0].global_symbol), variable, call)
        elif call.op.name == "relax.vm.alloc_storage":
            self.storages[variable] = len(self.sizes)
            (size,) = _numbers(call.args[0])
            self.sizes.append(size)
        elif call.op.name == "relax.vm.alloc_tensor":
            storage, byte = self.storages[call.args[0]], int(call.args[1].value)
            shape, dtype = _numbers(call.args[2]), str(call.args[3].value)
            self._add(variable, _InStorage(storage, byte, shape, dtype))
        elif call.op.name not in _NOTHING:
            raise NotPlannableError(f"it calls {call.op.name}")

    def _read_runtime(self, name: str, variable: relax.Var, call: relax.Call) -> None:
        if name in _CHECKS:
            return
        if name == PARAMETER:
            index = int(call.args[0].value)
            self._add(variable, self._outside(variable, Memory.PARAMETER, index))
            return
        if name not in _VIEWS:
            raise NotPlannableError(f"it calls {name}")
        (viewed,) = self._tensors_of(call.args[0])
        self._add(variable, replace(self.tensors[viewed], shape=_shape_of(variable)))

    def _read_kernel(self, name: str, call: relax.Call) -> None:
        if name.startswith(INPUT_CHECK):
            return
        given = (tensor for argument in call.args for tensor in self._tensors_of(argument))
        arguments = (*given, *map(self._workspace, self.workspaces.get(name, ())))
        for argument in arguments:
            self._use(argument, len(self.calls))
        self.calls.append(PlannedCall(name, arguments))

    def _workspace(self, size: int) -> int:
        self.sizes.append(size)
        self.tensors.append(_InStorage(len(self.sizes) - 1, 0, (size,), "uint8"))
        return len(self.tensors) - 1

    def _use(self, tensor: int, call: int) -> None:
        found = self.tensors[tensor]
        if isinstance(found, _InStorage):
            self.uses.setdefault(found.storage, []).append(call)

    def _fields(self, value: relax.Tuple) -> tuple[int, ...]:
        return tuple(tensor for one in value.fields for tensor in self._tensors_of(one))

    def _tensors_of(self, expression: relax.Expr) -> tuple[int, ...]:
        if isinstance(expression, relax.Tuple):
            return self._fields(expression)
        if not isinstance(expression, relax.Var) or expression not in self.values:
            raise NotPlannableError(f"it passes {type(expression).__name__}")
        found = self.values[expression]
        return (found,) if isinstance(found, int) else found

    def _add(self, variable: relax.Var, tensor: PlannedTensor | _InStorage) -> int:
        self.tensors.append(tensor)
        self.values[variable] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def _outside(self, variable: relax.Var, memory: Memory, number: int) -> PlannedTensor:
        if not isinstance(variable.ty, relax.TensorType) or variable.ty.dtype is None:
            raise NotPlannableError(f"{variable.name_hint} is not a tensor")
        return PlannedTensor(memory, number, _shape_of(variable), str(variable.ty.dtype))


def _placed(tensor: PlannedTensor | _InStorage, starts: tuple[int, ...]) -> PlannedTensor:
    if isinstance(tensor, PlannedTensor):
        return tensor
    return PlannedTensor(Memory.ARENA, starts[tensor.storage] + tensor.byte, tensor.shape, tensor.dtype)


def _shape_of(variable: relax.Var) -> tuple[int, ...]:
    if not isinstance(variable.ty, relax.TensorType) or variable.ty.shape is None:
        raise NotPlannableError(f"the shape of {variable.name_hint} is unknown")
    return _numbers(variable.ty.shape)


def _numbers(shape: relax.Expr) -> tuple[int, ...]:
    values = shape.values if isinstance(shape, relax.ShapeExpr) else shape
    if not all(isinstance(value, tvm.tirx.IntImm) for value in values):
        raise NotPlannableError("its sizes depend on its inputs")
    return tuple(int(value) for value in values)
