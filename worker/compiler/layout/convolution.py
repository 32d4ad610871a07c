"""Blocked layouts through the convolutional part of a graph.

A convolution's result stays in blocks of channels, ``[N, C / lanes, rows, columns, lanes]``, as long as
what reads it can work on blocks: convolutions, pools, elementwise operators, joins of channels, reshapes of
its dimensions. Conversions stand at the borders only; a plain image of few channels enters its first
convolution without one. Constant weights are packed here, others when the model runs.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.blocked_operators import cut
from worker.compiler.layout.blocked_rules import RULES
from worker.compiler.layout.convolution_kernels import from_blocks, to_blocks
from worker.compiler.layout.convolution_types import Array, Blocked, image_of
from worker.compiler.layout.convolution_window import Tensor
from worker.compiler.layout.views import cut_of
from worker.compiler.schedules.annotations import FUSES_OUTPUT, INJECTIVE, PATTERN
from worker.compiler.schedules.machine import Machine

_NARROWEST_BITS = 32


def block_convolutions(machine: Machine) -> tvm.transform.Pass:
    """A pass that computes convolutions and what follows them in blocks as wide as the vectors."""

    @tvm.transform.module_pass(opt_level=0, name="BlockConvolutions")
    def block(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        blocker = _Blocker(module, machine)
        for variable, function in module.functions_items():
            if isinstance(function, relax.Function):
                blocker.builder_.update_func(variable, blocker.visit_expr(function))
        return blocker.builder_.get()

    return block


@mutator
class _Blocker(PyExprMutator):
    """Leaves results in blocks; before what cannot read them, the plain tensor appears once.

    It is the ``BlockedGraph`` of the operators' rules.
    """

    def __init__(self, module: tvm.IRModule, machine: Machine) -> None:
        super().__init__(module)
        self._machine = machine
        self._blocked: dict[relax.Var, Blocked] = {}
        self._plain: set[relax.Var] = set()
        self._values: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self._values[binding.var] = binding.value
        blocked = self._apply_rule(binding.value)
        if blocked is None:
            super().visit_var_binding_(binding)
            return
        self._blocked[binding.var] = blocked
        if not isinstance(binding.var, relax.DataflowVar):
            self._plain.add(binding.var)
            super().visit_var_binding_(relax.VarBinding(binding.var, self._unblocked(blocked)))

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        blocked = self._blocked.get(variable)
        if blocked is not None and variable not in self._plain:
            self._plain.add(variable)
            self.set_var_remap(variable, self.builder_.emit(self._unblocked(blocked)))
        return super().visit_dataflow_var_(variable)

    def lanes(self, dtype: str) -> int:
        """Elements of a type in one block: narrow ones lie as far apart as those that they are summed to."""
        return self._machine.lanes(max(_NARROWEST_BITS, tvm.DataType(dtype).bits))

    def blocked(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, where it is so already."""
        return self._blocked.get(operand) if isinstance(operand, relax.Var) else None

    def block(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, converted if need be; None where it is no image."""
        ready = self.blocked(operand)
        image = image_of(operand)
        if ready is not None or image is None:
            return ready
        emitted = self.kernel(to_blocks(self.lanes(image.dtype)), "to_blocks", operand, pattern=INJECTIVE)
        result = Blocked(emitted, image.channels, image.sizes)
        if isinstance(operand, relax.Var):
            self._blocked[operand] = result
            self._plain.add(operand)
        return result

    def constant(self, operand: relax.Expr) -> Array | None:
        """The value of a constant."""
        return operand.value.numpy() if isinstance(operand, GenericConst) else None

    def kernel(
        self,
        kernel: Callable[..., Tensor],
        name: str,
        *operands: relax.Expr,
        pattern: int = FUSES_OUTPUT,
    ) -> relax.Var:
        """Emit a call of a kernel."""
        visited = [self.visit_expr(operand) for operand in operands]
        call = self.builder_.call_te(
            kernel, *visited, primfunc_name_hint=name, primfunc_attrs={PATTERN: pattern}
        )
        return self.builder_.emit(call)

    def emit(self, call: relax.Expr) -> relax.Var:
        """Emit a call of an operator on operands as they are now."""
        return self.builder_.emit(call)

    def plain(self, operand: relax.Expr) -> relax.Expr:
        """The operand as it is now, not in blocks."""
        return self.visit_expr(operand)

    def _apply_rule(self, value: relax.Expr) -> Blocked | None:
        part = cut_of(value, self._bound)
        if part is not None:
            return cut(value, part, self)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        rule = RULES.get(value.op.name)
        return None if rule is None else rule(value, self)

    def _bound(self, expression: relax.Expr) -> relax.Expr:
        return self._values.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def _unblocked(self, blocked: Blocked) -> relax.Expr:
        batch, blocks, rows, columns, lanes = blocked.variable.ty.shape
        if int(blocks) * int(lanes) == blocked.channels and int(rows) == int(columns) == 1:
            return relax.op.reshape(blocked.variable, (batch, blocked.channels, *blocked.sizes))
        kernel = from_blocks(blocked.channels, blocked.sizes)
        return self.builder_.call_te(kernel, blocked.variable, primfunc_name_hint="from_blocks")
