"""Allocate tensors that share memory in one storage, and drop the copies between them.

    a = alloc_tensor(...)                        storage = memory.alloc_storage([2048])
    conv(x, W, a)                                a = memory.alloc_tensor(storage, 0, ...)
    b = alloc_tensor(...)                        conv(x, W, a)
    conv(a, W, b)                           →    b = memory.alloc_tensor(storage, 1024, ...)
    c = alloc_tensor(...)                        conv(a, W, b)
    join(a, b, c)                                c = memory.alloc_tensor(storage, 0, ...)

Runs after ``CallTIRRewrite``, when every result has an allocation of its own, and before memory is planned.
``join`` and ``cut`` are the functions that ``share_memory`` marks. If an operand is not an allocation (an
argument of ``main``, for example), or the places contradict each other, the call stays and copies. Kernels
ignore a tensor's offset, so ``vm.builtin.ensure_zero_offset`` moves its pointer to the first byte.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.memory.placement import Part, Placement, Region, in_a_row
from worker.compiler.layout.relax_graph import bytes_of
from worker.compiler.schedules.annotations import FIRST_BYTE, JOIN, SHARES

_ALLOCATE = tvm.ir.Op.get("relax.builtin.alloc_tensor")
_AT_FIRST_BYTE = relax.ExternFunc("vm.builtin.ensure_zero_offset")
"""Moves a tensor's pointer to its first byte."""


@tvm.transform.module_pass(opt_level=0, name="ShareStorage")
def share_storage(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Allocate tensors that can share memory in one storage, and drop the copies between them."""
    copies = {
        variable: function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and function.attrs and SHARES in function.attrs
    }
    if not copies:
        return module
    changed = module.clone()
    called: set[tvm.ir.GlobalVar] = set()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            plan = _Plan(copies)
            plan.read(function)
            changed.update_func(variable, _Allocator(module, plan).visit_expr(function))
            called |= plan.kept
    for variable in copies.keys() - called:
        del changed[variable]
    return changed


class _Plan:
    """The regions of allocations, and the copies to drop."""

    def __init__(self, copies: dict[tvm.ir.GlobalVar, tirx.PrimFunc]) -> None:
        self._copies = copies
        self._values: dict[relax.Var, relax.Expr] = {}
        self._placement = Placement()
        self.dropped: set[relax.Var] = set()
        self.kept: set[tvm.ir.GlobalVar] = set()

    def read(self, function: relax.Function) -> None:
        """Decide on each call of a function's body, in order."""
        if not isinstance(function.body, relax.SeqExpr):
            return
        for block in function.body.blocks:
            for binding in block.bindings:
                value = getattr(binding, "value", None)
                self._values[binding.var] = value
                if isinstance(value, relax.Call) and value.op in self._copies:
                    self._decide(binding.var, value)

    def region(self, variable: relax.Var) -> Region | None:
        """The region of an allocation; None if it has its own storage."""
        return self._placement.region(variable)

    def _decide(self, variable: relax.Var, call: relax.Call) -> None:
        *operands, result = (self._allocation(argument) for argument in call.args)
        known = [operand for operand in operands if operand is not None]
        if result is None or len(known) != len(operands) or not self._place(call.op, known, result):
            self.kept.add(call.op)
        else:
            self.dropped.add(variable)

    def _place(self, copy: tvm.ir.GlobalVar, operands: list[relax.Var], result: relax.Var) -> bool:
        attributes = self._copies[copy].attrs
        if attributes[SHARES] == JOIN:
            return self._placement.join(
                result, in_a_row((operand, bytes_of(operand)) for operand in operands)
            )
        part = Part(result, int(attributes[FIRST_BYTE]), bytes_of(result))
        return self._placement.cut(operands[0], bytes_of(operands[0]), part)

    def _allocation(self, argument: relax.Expr) -> relax.Var | None:
        """The allocation behind an argument; None if there is none."""
        while isinstance(argument, relax.Var):
            value = self._values.get(argument)
            if isinstance(value, relax.TupleGetItem):
                whole = self._values.get(value.tuple_value)
                value = whole.fields[value.index] if isinstance(whole, relax.Tuple) else None
            if isinstance(value, relax.Call) and value.op == _ALLOCATE:
                return argument
            argument = value
        return None


@mutator
class _Allocator(PyExprMutator):
    def __init__(self, module: tvm.IRModule, plan: _Plan) -> None:
        super().__init__(module)
        self._plan = plan
        self._storages: dict[int, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._plan.dropped:
            return
        region = self._plan.region(binding.var)
        if region is None:
            super().visit_var_binding_(binding)
            return
        allocation = relax.op.memory.alloc_tensor(
            self._storage(region),
            region.offsets[binding.var],
            binding.value.args[0],
            str(binding.var.ty.dtype),
        )
        if region.offsets[binding.var]:
            at_its_place = self.builder_.emit(allocation)
            allocation = relax.Call(_AT_FIRST_BYTE, [at_its_place], ty_args=[binding.var.ty])
        super().visit_var_binding_(relax.VarBinding(binding.var, allocation))

    def _storage(self, region: Region) -> relax.Var:
        if id(region) not in self._storages:
            size = relax.ShapeExpr([region.end_bytes - region.start_bytes])
            storage = relax.op.memory.alloc_storage(size, 0, "global", "uint8")
            self._storages[id(region)] = self.builder_.emit(storage, "storage")
        return self._storages[id(region)]
