"""What a translation rule builds with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from tvm import relax

from worker.compiler.translation.dtypes import dtype_name, is_number
from worker.compiler.translation.untranslatable import UntranslatableError

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


class Emitter:
    """Binds expressions to variables, and knows what torch makes of the node that is translated.

    Attributes:
        node: the call in the exported program.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        node: Node,
        stock: Callable[[Node], Any] | None,
        inline: Callable[[GraphModule, list[Any]], tuple[Any, ...]],
    ) -> None:
        self.node = node
        self._builder = builder
        self._stock = stock
        self._inline = inline

    def __call__(self, expression: relax.Expr) -> relax.Expr:
        """Bind an expression to a new variable, which has a shape and a dtype."""
        return expression if isinstance(expression, relax.Var) else self._builder.emit(expression)

    def tensor_expression(self, compute: Callable[..., Any], *arguments: Any) -> relax.Expr:
        """Bind what a function of tensor expressions makes: a new TensorIR function, and a call of it.

        Args:
            compute: takes a ``te.Tensor`` for each Relax tensor, anything else as it is; ``topi`` works on
                them.
            arguments: what it takes.
        """
        return self._builder.emit_te(compute, *arguments)

    def stock(self) -> Any:
        """What TVM's own converter makes of the node.

        Raises:
            UntranslatableError: it has none.
        """
        if self._stock is None:
            raise UntranslatableError(f"TVM has no converter of {self.node.target}")
        return self._stock(self.node)

    def inlined(self, graph: GraphModule, operands: list[Any]) -> tuple[Any, ...]:
        """The results of a graph within the program, translated in place."""
        return self._inline(graph, operands)

    @property
    def results(self) -> list[torch.Tensor]:
        """The node's results in torch: fake tensors, which have shapes and dtypes only."""
        leaves = pytree.tree_leaves(self.node.meta.get("val"))
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    @property
    def dtype(self) -> str:
        """The dtype of the first result."""
        return dtype_name(self.results[0].dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first result.

        Raises:
            UntranslatableError: a size is open.
        """
        return fixed(tuple(self.results[0].shape), str(self.node.target))

    def reads(self, place: int) -> bool:
        """Whether one of several results is read."""
        return any(user.args[1:] == (place,) for user in self.node.users)

    def operands(self) -> list[Any]:
        """The node's tensors and numbers as torch knows them, for its rules of type promotion."""
        values = (getattr(leaf, "meta", {}).get("val", leaf) for leaf in pytree.tree_leaves(self.node.args))
        return [value for value in values if isinstance(value, torch.Tensor | int | float)]

    def full(self, shape: tuple[Any, ...], value: Any, dtype: str) -> relax.Expr:
        """A tensor of one value. TVM's own cannot be built of infinities."""
        if math.isfinite(value):
            return self(relax.op.full(shape, relax.const(value, dtype), dtype))
        return self(relax.op.broadcast_to(relax.const(value, dtype), shape))

    def cast(self, value: Any, dtype: str) -> relax.Expr:
        """A tensor in a dtype; a number becomes a constant of it."""
        if is_number(value):
            return relax.const(value, dtype)
        return value if dtype_of(value) == dtype else self(relax.op.astype(value, dtype))


def dtype_of(tensor: relax.Expr) -> str:
    """The dtype of a tensor."""
    return str(tensor.ty.dtype)


def shape_of(tensor: relax.Expr) -> tuple[Any, ...]:
    """The shape of a tensor; a fixed size is an integer, an open one an expression."""
    return tuple(getattr(size, "value", size) for size in tensor.ty.shape)


def fixed(sizes: tuple[Any, ...], what: str) -> tuple[int, ...]:
    """Sizes that are all fixed.

    Raises:
        UntranslatableError: one is open; the message names ``what`` needs it.
    """
    if not all(isinstance(size, int) for size in sizes):
        raise UntranslatableError(f"{what} with open sizes {sizes}")
    return tuple(int(size) for size in sizes)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; a tensor without axes has one for this."""
    return axis % max(rank, 1)
