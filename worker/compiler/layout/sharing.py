"""Joins and slices whose tensors can share their memory, so that nobody copies them.

A ``concat`` whose parts follow each other in memory — nothing but ones lies before its axis, as with the
channels of a single image — costs nothing where kernels write the parts where they belong; a slice or a part
of a split like that is read where it lies. Such calls become functions of their own, which no other is fused
with: ``layout.shared_memory`` drops their calls when memory is planned. Parts that are themselves
views or cheap chains of elementwise operators are left to fusion, which reads through the join.
"""

from __future__ import annotations

from math import prod

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.blocked_operators import ELEMENTWISE
from worker.compiler.layout.contiguous import write_cut, write_join
from worker.compiler.layout.placement import Part, Placement, in_a_row
from worker.compiler.layout.views import Cut, bytes_of, cut_of, element_bytes, operator_of, static_shape
from worker.compiler.schedules.annotations import FIRST_BYTE, FUSES_OUTPUT, OPAQUE, PATTERN
from worker.compiler.schedules.machine import Machine

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
        """Whether a kernel writes a value that nothing but elementwise operators can be fused with."""
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
    """Whether what follows each other along an axis does so in memory."""
    return prod(shape[:axis]) == 1
