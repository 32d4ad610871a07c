"""Mark joins and slices whose tensors can share memory, before operators are fused.

    c = concat((a, b), axis=1)                  →   c = call_tir(join, (a, b))
    d = strided_slice(a, axes=[1], ...)         →   d = call_tir(cut, (a,))

``join`` and ``cut`` copy, but carry the attribute ``SHARES``: ``share_storage`` drops their calls once memory
is allocated. A call qualifies if all sizes before the axis are 1, so that parts are contiguous (channels of a
single image, for example), if a kernel writes the parts, and if ``placement`` finds a place for them. Inputs,
views, and elementwise chains that no kernel feeds are left to fusion, which reads through the join.

Loops of the copies: the parts; for each its dimensions in order, the outermost that is not 1 in parallel if
the work is worth it. LLVM copies the last dimension in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.blocked.operator_rules import ELEMENTWISE
from worker.compiler.layout.memory.placement import Part, Placement, in_a_row
from worker.compiler.layout.relax_graph import bytes_of, element_bytes, operator_of, static_shape
from worker.compiler.layout.views import Cut, cut_of
from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import CUT, FIRST_BYTE, FUSES_OUTPUT, JOIN, OPAQUE, PATTERN, SHARES
from worker.compiler.schedules.nest import INDEX, signature
from worker.compiler.schedules.processors import WORK_PER_THREAD, Machine, threads_pay

_FUSED = frozenset({*ELEMENTWISE, "astype", "divide", "exp", "sqrt"})
_KERNELS = frozenset({"matmul", "mean", "sum"})
_CALL_TIR = tvm.ir.Op.get("relax.call_tir")


def share_memory(machine: Machine) -> tvm.transform.Pass:
    """A pass that replaces joins and slices without a copy by calls of functions that say so."""

    @tvm.transform.module_pass(opt_level=0, name="ShareMemory")
    def share(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        sharer = _Sharer(module, machine.threads)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                sharer.builder_.update_func(variable, sharer.visit_expr(function))
        return sharer.builder_.get()

    return share


@mutator
class _Sharer(PyExprMutator):
    def __init__(self, module: tvm.IRModule, threads: int) -> None:
        super().__init__(module)
        self._module = module
        self._threads = threads
        self._placement = Placement()
        self._written: set[relax.Var] = set()
        self._values: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        variable, value = binding.var, binding.value
        self._values[variable] = value
        shared = self._share(variable, value)
        if shared is not None or self._is_written(value):
            self._written.add(variable)
        super().visit_var_binding_(binding if shared is None else relax.VarBinding(variable, shared))

    def _share(self, variable: relax.Var, value: relax.Expr) -> relax.Expr | None:
        if operator_of(value) == "concat":
            return self._join(variable, value)
        cut = cut_of(value, self._bound)
        return None if cut is None else self._cut(variable, value, cut)

    def _join(self, variable: relax.Var, call: relax.Call) -> relax.Expr | None:
        shape, parts = static_shape(call), getattr(call.args[0], "fields", None)
        if shape is None or not parts or call.attrs.axis is None:
            return None
        axis = int(call.attrs.axis) % len(shape)
        shapes = [static_shape(part) for part in parts]
        known = [sizes for sizes in shapes if sizes is not None]
        if len(known) != len(parts) or not _is_outermost(shape, axis):
            return None
        if not all(isinstance(part, relax.Var) and part in self._written for part in parts):
            return None
        if not self._placement.join(variable, in_a_row((part, bytes_of(part)) for part in parts)):
            return None
        function = write_join(known, axis, str(call.ty.dtype), self._threads)
        return self._call(function, "join", parts, call)

    def _cut(self, variable: relax.Var, part: relax.Expr, cut: Cut) -> relax.Expr | None:
        whole, axis, first = cut
        shape, sizes = static_shape(whole), static_shape(part)
        if shape is None or sizes is None or shape == sizes or whole not in self._written:
            return None
        if not _is_outermost(shape, axis):
            return None
        first_byte = first * prod(shape[axis + 1 :]) * element_bytes(whole)
        if not self._placement.cut(whole, bytes_of(whole), Part(variable, first_byte, bytes_of(part))):
            return None
        function = write_cut(shape, sizes, axis, first, str(part.ty.dtype), self._threads)
        return self._call(function.with_attr(FIRST_BYTE, first_byte), "cut", [whole], part)

    def _call(
        self, function: tirx.PrimFunc, name: str, operands: list[relax.Expr], like: relax.Expr
    ) -> relax.Expr:
        variable = self.builder_.add_func(function, name)
        return relax.call_tir(variable, relax.Tuple(operands), like.ty)

    def _is_written(self, value: relax.Expr) -> bool:
        """Whether a kernel writes a value, elementwise operators after it included."""
        if isinstance(value, relax.Call) and value.op == _CALL_TIR:
            function = self._module[value.args[0]]
            pattern = function.attrs.get(PATTERN) if function.attrs else None
            return pattern is not None and int(pattern) in (FUSES_OUTPUT, OPAQUE)
        name = operator_of(value)
        if name in _FUSED:
            return any(argument in self._written for argument in value.args)
        return name in _KERNELS or name.startswith("nn.")

    def _bound(self, expression: relax.Expr) -> relax.Expr:
        return self._values.get(expression, expression) if isinstance(expression, relax.Var) else expression


def _is_outermost(shape: tuple[int, ...], axis: int) -> bool:
    """Whether parts along an axis follow each other in memory."""
    return prod(shape[:axis]) == 1


Shape = tuple[int, ...]


def write_join(shapes: Sequence[Shape], axis: int, dtype: str, threads: int) -> tirx.PrimFunc:
    """A scheduled function that joins tensors along an axis."""
    joined = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    inputs = {f"part{number}": (shape, dtype) for number, shape in enumerate(shapes)}
    function = signature(inputs, {"whole": (joined, dtype)})
    *parts, whole = function.params
    copies, first = [], 0
    for part, shape in zip(parts, shapes, strict=True):
        copies.append(_copy(shape, threads, _copier(part, 0, whole, first, axis)))
        first += shape[axis]
    return nest.with_loops(function.with_attr(SHARES, JOIN), nest.sequence(*copies))


def write_cut(shape: Shape, part: Shape, axis: int, first: int, dtype: str, threads: int) -> tirx.PrimFunc:
    """A scheduled function that copies the part of a tensor that begins at ``first`` along an axis."""
    function = signature({"whole": (shape, dtype)}, {"part": (part, dtype)})
    whole, result = function.params
    copy = _copy(part, threads, _copier(whole, first, result, 0, axis))
    return nest.with_loops(function.with_attr(SHARES, CUT), copy)


def _copier(
    source: Any, source_first: int, target: Any, target_first: int, axis: int
) -> Callable[[Sequence[Any]], tirx.Stmt]:
    def element(place: Sequence[Any]) -> tirx.Stmt:
        value = source[tuple(_moved(place, axis, source_first))]
        return nest.store(target, value, *_moved(place, axis, target_first))

    return element


def _moved(place: Sequence[Any], axis: int, by: int) -> list[Any]:
    return [index + by if dimension == axis else index for dimension, index in enumerate(place)]


def _copy(shape: Shape, threads: int, element: Callable[[Sequence[Any]], tirx.Stmt]) -> tirx.Stmt:
    """Loops over all elements of a part."""
    outer = next((dimension for dimension, size in enumerate(shape[:-1]) if size > 1), None)
    pays = threads_pay(threads, prod(shape), WORK_PER_THREAD)

    def loops(place: tuple[Any, ...]) -> tirx.Stmt:
        dimension = len(place)
        if dimension == len(shape):
            return element(place)
        return nest.tasks(
            shape[dimension],
            lambda index: loops((*place, index)),
            INDEX,
            parallel=pays and dimension == outer,
        )

    return loops(())
