"""Splits a fused function that takes too long to compile.

Emits, for ``f(x, y): t = g(x); y = h(t)`` and its call ``y = call_tir(f, x)``::

    f_part0(x, t): t = g(x)
    f_part1(t, y): y = h(t)

    t = call_tir(f_part0, x)
    y = call_tir(f_part1, t)

Statements that write the same buffer, and those between them, stay in one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import structural_map

from worker.compiler.schedules.annotations import PATTERN

_CALL = tvm.ir.Op.get("relax.call_tir")


@dataclass(frozen=True)
class Part:
    """One part of a function that was cut.

    Attributes:
        function: takes ``inputs``, then ``outputs``; it has no schedule.
        inputs: the buffers of the whole function that the part reads.
        outputs: the buffers of the whole function that the part writes.
    """

    function: tirx.PrimFunc
    inputs: tuple[tirx.Var, ...]
    outputs: tuple[tirx.Var, ...]


@dataclass(frozen=True)
class _Step:
    """Statements that stay together, and the buffers that they use."""

    statements: tuple[tirx.Stmt, ...]
    reads: tuple[tirx.Var, ...]
    writes: tuple[tirx.Var, ...]


@dataclass(frozen=True)
class Pieces:
    """The parameters of a function that was cut, and its parts in execution order."""

    parameters: tuple[tirx.Var, ...]
    parts: tuple[Part, ...]

    def changed(self, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> Pieces:
        """The pieces with every part's function changed."""
        parts = tuple(replace(part, function=change(part.function)) for part in self.parts)
        return replace(self, parts=parts)


class Split(NamedTuple):
    """A module without the functions that were split, and the names of the parts of each."""

    module: tvm.IRModule
    parts: dict[str, tuple[str, ...]]


def pieces_of(name: str, module: tvm.IRModule) -> Pieces | None:
    """The pieces that a function can be split into; None if it cannot be split.

    Args:
        name: the function's name.
        module: legalized and fused; its functions have no schedules.
    """
    function = module[name]
    if name not in _split_by_calls(module):
        return None
    parts = cut(function)
    known = set(chain.from_iterable(map(_sizes, function.params)))
    passed = chain.from_iterable((*part.inputs, *part.outputs) for part in parts)
    is_known = all(_used(size) <= known for buffer in passed for size in buffer.ty.shape)
    if not parts or not is_known or not all(_finds_sizes(part, known) for part in parts):
        return None
    return Pieces(tuple(function.params), parts)


def split_functions(module: tvm.IRModule, pieces: Mapping[str, Pieces]) -> Split:
    """Replace calls of functions by calls of their parts, whose results are tensors of the caller.

    Args:
        module: the module with the calls.
        pieces: the pieces by the function's name.

    Returns:
        The module without those functions.
    """
    splitter = _Splitter(module, pieces)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            splitter.builder_.update_func(variable, splitter.visit_expr(function))
    changed = splitter.builder_.get()
    kept = {
        variable: function
        for variable, function in changed.functions.items()
        if variable.name_hint not in pieces
    }
    names = {
        name: tuple(str(variable.name_hint) for variable in variables)
        for name, variables in splitter.variables.items()
    }
    return Split(tvm.IRModule(kept, attrs=module.attrs), names)


@mutator
class _Splitter(PyExprMutator):
    def __init__(self, module: tvm.IRModule, pieces: Mapping[str, Pieces]) -> None:
        super().__init__(module)
        self._pieces = pieces
        self.variables = {
            name: [self.builder_.add_func(part.function, f"{name}_part") for part in own.parts]
            for name, own in pieces.items()
        }

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = super().visit_call_(call)
        name = str(call.args[0].name_hint) if call.op == _CALL else ""
        return self._call_parts(name, call) if name in self._pieces else call

    def _call_parts(self, name: str, call: relax.Call) -> relax.Expr:
        parameters, parts = self._pieces[name].parameters, self._pieces[name].parts
        arguments = list(call.args[1].fields)
        types = [*(argument.ty for argument in arguments), *_fields(call.ty)]
        sizes = dict(chain.from_iterable(map(_matched_sizes, parameters, types)))
        tensors = dict(zip(parameters, arguments, strict=False))
        for part, variable in zip(parts, self.variables[name], strict=True):
            inputs = relax.Tuple([tensors[buffer] for buffer in part.inputs])
            outputs = [_tensor_type(buffer, sizes) for buffer in part.outputs]
            result = self.builder_.emit(relax.call_tir(variable, inputs, _one_or_all(outputs)))
            tensors.update(zip(part.outputs, self._unpacked(result, len(outputs)), strict=True))
        results = [tensors[buffer] for buffer in parameters[len(arguments) :]]
        return relax.Tuple(results) if isinstance(call.ty, relax.TupleType) else results[0]

    def _unpacked(self, result: relax.Expr, count: int) -> list[relax.Expr]:
        if count == 1:
            return [result]
        return [self.builder_.emit(relax.TupleGetItem(result, index)) for index in range(count)]


def _split_by_calls(module: tvm.IRModule) -> set[str]:
    """The functions that only ``call_tir`` calls, with tensors only."""
    called: set[str] = set()
    otherwise: set[str] = set()

    def visit(expression: relax.Expr) -> None:
        if not isinstance(expression, relax.Call):
            return
        is_plain = expression.op == _CALL and len(expression.args) == 2
        names = called if is_plain else otherwise
        used = (part for part in (expression.op, *expression.args) if isinstance(part, tvm.ir.GlobalVar))
        names.update(str(variable.name_hint) for variable in used)

    for function in module.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return called - otherwise


def _finds_sizes(part: Part, dynamic_sizes: set[tirx.Var]) -> bool:
    """Whether the shapes of a part's tensors determine every dynamic size that it uses."""
    buffers = (*part.inputs, *part.outputs)
    used = chain(_used(part.function.body), *(_used(size) for buffer in buffers for size in buffer.ty.shape))
    return set(used) & dynamic_sizes <= set(chain.from_iterable(map(_sizes, buffers)))


def _sizes(buffer: tirx.Var) -> Iterator[tirx.Var]:
    return (size for size in buffer.ty.shape if isinstance(size, tirx.Var))


def _used(part: Any) -> set[tirx.Var]:
    return set(undefined_vars(part, []))


def _matched_sizes(parameter: tirx.Var, given: relax.Type) -> Iterator[tuple[tirx.Var, Any]]:
    pairs = zip(parameter.ty.shape, given.shape.values, strict=True)
    return ((size, value) for size, value in pairs if isinstance(size, tirx.Var))


def _tensor_type(buffer: tirx.Var, sizes: dict[tirx.Var, Any]) -> relax.TensorType:
    shape = [structural_map(size, (tirx.Var, lambda size: sizes.get(size, size))) for size in buffer.ty.shape]
    return relax.TensorType(shape, str(buffer.ty.dtype))


def _fields(given: relax.Type) -> Iterable[relax.Type]:
    return given.fields if isinstance(given, relax.TupleType) else (given,)


def _one_or_all(types: list[relax.TensorType]) -> Any:
    return types[0] if len(types) == 1 else types


def steps_of(function: tirx.PrimFunc) -> int:
    """The number of statements between which a function can be cut."""
    return max(1, len(_statements(function)))


def cut(function: tirx.PrimFunc) -> tuple[Part, ...]:
    """The parts of a function in execution order.

    Args:
        function: legalized and fused, without a schedule.

    Returns:
        At least two parts, or an empty tuple if the function cannot be cut.
    """
    steps: list[_Step] = []
    for statement in _statements(function):
        step = _read_step(statement, (*function.params, *function.body.block.alloc_buffers))
        if step is None:
            return ()
        steps = _followed(steps, step)
    return tuple(_make_part(step, function) for step in steps) if len(steps) > 1 else ()


def _statements(function: tirx.PrimFunc) -> tuple[tirx.Stmt, ...]:
    """The statements of the root block; empty if it has only one."""
    if not isinstance(function.body, s_tir.SBlockRealize):
        return ()
    body = function.body.block.body
    return tuple(body.seq) if isinstance(body, tirx.SeqStmt) else ()


def _read_step(statement: tirx.Stmt, buffers: Sequence[tirx.Var]) -> _Step | None:
    """A statement and the buffers that it uses; None if its blocks do not declare what they write."""
    written: set[tirx.Var] = set()
    read: set[tirx.Var] = set(undefined_vars(statement, []))

    def visit(block: s_tir.SBlock) -> None:
        written.update(region.source for region in block.writes)
        read.update(region.source for region in block.reads)

    tvm_ffi.structural_walk(statement, (s_tir.SBlock, visit))
    writes = tuple(buffer for buffer in buffers if buffer in written)
    reads = tuple(buffer for buffer in buffers if buffer in read and buffer not in written)
    return _Step((statement,), reads, writes) if writes else None


def _followed(steps: list[_Step], step: _Step) -> list[_Step]:
    """Add a step. If an earlier step writes the same buffer, merge all steps from there on."""
    first = next((i for i, other in enumerate(steps) if set(step.writes) & set(other.writes)), len(steps))
    together = (*steps[first:], step)
    writes = dict.fromkeys(buffer for each in together for buffer in each.writes)
    reads = dict.fromkeys(buffer for each in together for buffer in each.reads if buffer not in writes)
    statements = tuple(statement for each in together for statement in each.statements)
    return [*steps[:first], _Step(statements, tuple(reads), tuple(writes))]


def _make_part(step: _Step, whole: tirx.PrimFunc) -> Part:
    body = step.statements[0] if len(step.statements) == 1 else tirx.SeqStmt(step.statements)
    root = s_tir.SBlockRealize([], True, s_tir.SBlock([], [], [], "root", body))
    function = tirx.PrimFunc([*step.reads, *step.writes], root, attrs=whole.attrs)
    return Part(function.without_attr(PATTERN), step.reads, step.writes)
