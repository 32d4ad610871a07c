"""The graph that ``BlockConvolutions`` builds: which tensors are in blocks, and conversions where needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from worker.compiler.layout.blocked.compute import from_blocks, to_blocks
from worker.compiler.layout.blocked.gather import Slots, write_gather
from worker.compiler.layout.choices import LayoutChoices
from worker.compiler.layout.constants import array_of
from worker.compiler.layout.images import OPEN, Tensor, image_of
from worker.compiler.schedules.annotations import FUSES_OUTPUT, INJECTIVE, PATTERN
from worker.compiler.schedules.nest import Sizes, bits_of
from worker.compiler.schedules.processors import Machine

Array = NDArray[Any]


@dataclass(frozen=True)
class Blocked:
    """A tensor ``[N, C / lanes, rows, columns, lanes]`` that holds ``channels`` channels.

    ``sizes`` are the plain image's; ``rows`` is the product of all but the last. ``slots`` are the places of
    the channels, counted through all lanes of all blocks; if None, they follow one another, as they always do
    if the sizes are open.
    """

    variable: relax.Var
    channels: int
    sizes: Sizes
    slots: Slots | None = None

    @property
    def places(self) -> Slots:
        """The slot of each channel."""
        return tuple(range(self.channels)) if self.slots is None else self.slots

    @property
    def lanes(self) -> int:
        """Channels of a block."""
        return int(self.variable.ty.shape[4])

    @property
    def blocks(self) -> int:
        """Blocks of the tensor."""
        return int(self.variable.ty.shape[1])

    @property
    def spare_blocks(self) -> int:
        """Blocks beyond those that the channels would fill without gaps."""
        return self.blocks - -(-self.channels // self.lanes)

    @property
    def is_open(self) -> bool:
        """Whether rows and columns are known only when the library runs."""
        return OPEN in self.sizes

    @property
    def has_known_shape(self) -> bool:
        """Whether the number of images and their sizes are known."""
        return isinstance(self.variable.ty.shape[0], tirx.IntImm) and not self.is_open

    def with_slots(self, slots: Slots) -> Blocked:
        """Other channels of the same tensor."""
        follow = slots == tuple(range(len(slots))) and -(-len(slots) // self.lanes) == self.blocks
        return Blocked(self.variable, len(slots), self.sizes, None if follow else slots)


@dataclass(frozen=True)
class Postponed:
    """A value that is computed when a plain reader needs it; rules look through it.

    ``slots`` are the places of the channels of ``data``, which a reshape has laid in two dimensions.
    """

    data: Blocked
    slots: Array | None = None


def _fixed_type(operand: relax.Expr) -> tuple[tuple[int, ...], str] | None:
    """The sizes and the dtype of a tensor of fixed sizes; None for others."""
    if not isinstance(operand.ty, relax.TensorType) or operand.ty.shape is None:
        return None
    sizes = tuple(operand.ty.shape)
    is_fixed = all(isinstance(size, tirx.IntImm) for size in sizes)
    return (tuple(map(int, sizes)), str(operand.ty.dtype)) if is_fixed else None


_NARROWEST_BITS = 32
MOST_SPARE = 0.25
"""Kernels compute spare blocks up to this share of the filled ones, rather than copy the channels."""
_CONVERSIONS = frozenset({"to_blocks", "pack_weights", "regroup"})
_KERNELS = ("relax.nn.conv", "relax.nn.max_pool", "relax.nn.avg_pool", "relax.nn.adaptive", "relax.mean")
"""The prefixes of operators that are not computed twice."""


@mutator
class BlockedGraph(PyExprMutator):
    """A graph whose results stay in blocks; a plain tensor appears once, before its first plain reader."""

    def __init__(
        self,
        module: tvm.IRModule,
        machine: Machine,
        apply_rule: Callable[[relax.Expr, BlockedGraph], Blocked | Postponed | relax.Expr | None],
        winograd_error: float,
        choices: LayoutChoices,
    ) -> None:
        super().__init__(module)
        self.machine = machine
        self.winograd_error = winograd_error
        self.choices = choices
        self._apply_rule = apply_rule
        self._blocked: dict[relax.Var, Blocked] = {}
        self._postponed: dict[relax.Var, Postponed] = {}
        self._plain: set[relax.Var] = set()
        self._functions: dict[Any, tuple[Any, Any]] = {}
        self._values: dict[relax.Var, relax.Expr] = {}
        self._name = ""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Compute a binding in blocks where a rule says how."""
        self._values[binding.var] = binding.value
        self._name = str(binding.var.name)
        blocked = self._apply_rule(binding.value, self)
        if isinstance(blocked, relax.Expr):
            self._plain.add(binding.var)
            super().visit_var_binding_(relax.VarBinding(binding.var, blocked))
            return
        if isinstance(blocked, Blocked):
            self._blocked[binding.var] = blocked
        elif blocked is not None:
            self._postponed[binding.var] = blocked
        if blocked is not None and isinstance(binding.var, relax.DataflowVar):
            return
        self._plain.add(binding.var)
        plain = self._plain_value(binding.var)
        super().visit_var_binding_(binding if plain is None else relax.VarBinding(binding.var, plain))

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        """Convert a blocked result back, once, for the first reader that needs it plain."""
        if variable not in self._plain and (variable in self._blocked or variable in self._postponed):
            self._plain.add(variable)
            plain = self._plain_value(variable)
            if plain is None:
                plain = self.visit_expr(self._values[variable])
            self.set_var_remap(variable, self.builder_.emit(plain, str(variable.name)))
        return super().visit_dataflow_var_(variable)

    def _plain_value(self, variable: relax.Var) -> relax.Expr | None:
        """A blocked result as a plain tensor; None if that is computed from plain operands."""
        blocked = self._blocked.get(variable)
        if blocked is None or (blocked.slots is not None and not self._is_kernel(variable)):
            return None
        return self._unblocked(self._gathered(variable, blocked))

    def lanes(self, dtype: str) -> int:
        """Channels in one block: elements of the dtype in a vector, of 32 bits at least."""
        return self.machine.lanes(max(_NARROWEST_BITS, bits_of(dtype)))

    def blocked(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks without gaps; None if it is not in blocks yet."""
        found = self.spread(operand)
        return None if found is None else self._gathered(operand, found)

    def spread(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, its channels in any slots; None if it is not in blocks yet."""
        return self._blocked.get(operand) if isinstance(operand, relax.Var) else None

    def compact(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, its channels in any slots, but without many gaps."""
        found = self.spread(operand)
        if found is None or found.spare_blocks <= MOST_SPARE * (found.blocks - found.spare_blocks):
            return found
        return self._gathered(operand, found)

    def postponed(self, operand: relax.Expr) -> Postponed | None:
        """What a postponed operand stands for; None for others."""
        return self._postponed.get(operand) if isinstance(operand, relax.Var) else None

    def block(self, operand: relax.Expr) -> Blocked | None:
        """The operand in blocks, converted if necessary; None if it is not an image."""
        ready = self.blocked(operand)
        image = image_of(operand, may_be_open=True)
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
        """Emit a call of a kernel. Calls of the same kernel on tensors of equal types share a function."""
        visited = [self.visit_expr(operand) for operand in operands]
        types = tuple(map(_fixed_type, visited))
        known = self._functions.get((kernel, name, pattern, types)) if None not in types else None
        if known is None:
            call = self.builder_.call_te(
                kernel, *visited, primfunc_name_hint=name, primfunc_attrs={PATTERN: pattern}
            )
            self._functions[kernel, name, pattern, types] = (call.args[0], call.ty_args)
        else:
            variable, results = known
            call = relax.call_tir(variable, relax.Tuple(visited), list(results))
        return self.emit(call) if name in _CONVERSIONS else self.emit_result(call)

    def emit(self, call: relax.Expr) -> relax.Var:
        """Emit a call whose operands already belong to the new graph."""
        return self.builder_.emit(call)

    def emit_result(self, call: relax.Expr) -> relax.Var:
        """Emit a call that computes a binding of the old graph, under its name, which leads to its origin."""
        return self.builder_.emit(call, self._name)

    def emitted(self, variable: relax.Expr) -> relax.Expr:
        """What a variable of the new graph is bound to; other expressions are themselves."""
        bound = self.builder_.lookup_binding(variable) if isinstance(variable, relax.Var) else None
        return variable if bound is None else bound

    def plain(self, operand: relax.Expr) -> relax.Expr:
        """The plain operand in the new graph."""
        return self.visit_expr(operand)

    def bound(self, expression: relax.Expr) -> relax.Expr:
        """What a variable is bound to; other expressions are themselves."""
        return self._values.get(expression, expression) if isinstance(expression, relax.Var) else expression

    def _gathered(self, operand: relax.Var, blocked: Blocked) -> Blocked:
        """A blocked operand without gaps; later readers get it too."""
        if blocked.slots is None:
            return blocked
        shape, dtype = tuple(map(int, blocked.variable.ty.shape)), str(blocked.variable.ty.dtype)
        function = write_gather(shape, blocked.slots, dtype, self.machine.threads)
        variable = self.builder_.add_func(function, "gather")
        kind = relax.TensorType((shape[0], -(-blocked.channels // shape[4]), *shape[2:]), dtype)
        emitted = self.builder_.emit(relax.call_tir(variable, relax.Tuple([blocked.variable]), kind))
        self._blocked[operand] = Blocked(emitted, blocked.channels, blocked.sizes)
        return self._blocked[operand]

    def _is_kernel(self, variable: relax.Var) -> bool:
        value = self._values[variable]
        name = str(value.op.name) if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
        return name.startswith(_KERNELS)

    def _unblocked(self, blocked: Blocked) -> relax.Expr:
        batch, blocks, rows, columns, lanes = blocked.variable.ty.shape
        is_flat = not blocked.is_open and int(rows) == int(columns) == 1
        if is_flat and int(blocks) * int(lanes) == blocked.channels:
            return relax.op.reshape(blocked.variable, (batch, blocked.channels, *blocked.sizes))
        kernel = from_blocks(blocked.channels, blocked.sizes)
        return self.builder_.call_te(kernel, blocked.variable, primfunc_name_hint="from_blocks")
