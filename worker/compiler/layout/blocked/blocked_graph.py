"""The graph that ``BlockConvolutions`` builds: which tensors are in blocks, and conversions where needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.blocked.compute import from_blocks, to_blocks
from worker.compiler.layout.constants import array_of
from worker.compiler.layout.images import Tensor, image_of
from worker.compiler.schedules.annotations import FUSES_OUTPUT, INJECTIVE, PATTERN
from worker.compiler.schedules.nest import Sizes
from worker.compiler.schedules.processors import Machine

Array = NDArray[Any]


@dataclass(frozen=True)
class Blocked:
    """A tensor ``[N, C / lanes, rows, columns, lanes]`` that holds ``channels`` channels.

    ``sizes`` are the plain image's; ``rows`` is the product of all but the last.
    """

    variable: relax.Var
    channels: int
    sizes: Sizes


_NARROWEST_BITS = 32


@mutator
class BlockedGraph(PyExprMutator):
    """A graph whose results stay in blocks; a plain tensor appears once, before its first plain reader."""

    def __init__(
        self,
        module: tvm.IRModule,
        machine: Machine,
        apply_rule: Callable[[relax.Expr, BlockedGraph], Blocked | None],
        winograd_error: float,
    ) -> None:
        super().__init__(module)
        self.machine = machine
        self.winograd_error = winograd_error
        self._apply_rule = apply_rule
        self._blocked: dict[relax.Var, Blocked] = {}
        self._plain: set[relax.Var] = set()
        self._values: dict[relax.Var, relax.Expr] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Compute a binding in blocks where a rule says how."""
        self._values[binding.var] = binding.value
        blocked = self._apply_rule(binding.value, self)
        if blocked is None:
            super().visit_var_binding_(binding)
            return
        self._blocked[binding.var] = blocked
        if not isinstance(binding.var, relax.DataflowVar):
            self._plain.add(binding.var)
            super().visit_var_binding_(relax.VarBinding(binding.var, self._unblocked(blocked)))

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        """Convert a blocked result back, once, for the first reader that needs it plain."""
        blocked = self._blocked.get(variable)
        if blocked is not None and variable not in self._plain:
            self._plain.add(variable)
            self.set_var_remap(variable, self.builder_.emit(self._unblocked(blocked)))
        return super().visit_dataflow_var_(variable)

    def lanes(self, dtype: str) -> int:
        """Channels in one block: elements of the dtype in a vector, of 32 bits at least."""
        return self.machine.lanes(max(_NARROWEST_BITS, tvm.DataType(dtype).bits))

    def blocked(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks; None if it is not in blocks yet."""
        return self._blocked.get(operand) if isinstance(operand, relax.Var) else None

    def block(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, converted if necessary; None if it is not an image."""
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
        """The value of a constant; None for other operands."""
        return array_of(operand) if isinstance(operand, GenericConst) else None

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
        """Emit a call whose operands already belong to the new graph."""
        return self.builder_.emit(call)

    def plain(self, operand: relax.Expr) -> relax.Expr:
        """The plain operand in the new graph."""
        return self.visit_expr(operand)

    def bound(self, expression: relax.Expr) -> relax.Expr:
        """What a variable is bound to; other expressions are themselves."""
        return self._values.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def _unblocked(self, blocked: Blocked) -> relax.Expr:
        batch, blocks, rows, columns, lanes = blocked.variable.ty.shape
        if int(blocks) * int(lanes) == blocked.channels and int(rows) == int(columns) == 1:
            return relax.op.reshape(blocked.variable, (batch, blocked.channels, *blocked.sizes))
        kernel = from_blocks(blocked.channels, blocked.sizes)
        return self.builder_.call_te(kernel, blocked.variable, primfunc_name_hint="from_blocks")
