"""The interface that translation rules emit Relax with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._decomp import core_aten_decompositions
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import ValueRanges
from tvm import relax, te, tirx

from worker.compiler.translation.dtypes import dtype_name, is_number, wrapped
from worker.compiler.translation.errors import UntranslatableError
from worker.compiler.translation.module_calls import InnerCall, ModuleCall
from worker.compiler.translation.symbolic_shapes import is_size

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

    from worker.compiler.translation.importer import Importer

    Results = Iterable[tuple[tuple[Any, ...], str]]


SIZES_OF_DATA: ValueRanges[Any] = ValueRanges(0, (1 << 31) - 1)
"""The bytes of a tensor with two axes of this size do not fit an address, but fit 64 bits."""


class Emitter:
    """Binds expressions to variables, and gives torch's results for the node that is being translated.

    Attributes:
        node: the call in the exported program.
    """

    def __init__(
        self,
        builder: relax.BlockBuilder,
        node: Node,
        stock: Callable[[Node], Any] | None,
        importer: Importer,
    ) -> None:
        self.node = node
        self._builder = builder
        self._stock = stock
        self._importer = importer

    def __call__(self, expression: relax.Expr) -> relax.Expr:
        """Bind an expression to a new variable with a shape and a dtype."""
        return expression if isinstance(expression, relax.Var) else self._builder.emit(expression)

    def tensor_expression(self, compute: Callable[..., Any], *arguments: Any) -> relax.Expr:
        """Turn a function of tensor expressions into a TensorIR function, and bind a call of that.

        Args:
            compute: takes a ``te.Tensor`` for each Relax tensor, and other arguments unchanged.
            arguments: its arguments.
        """
        return self._builder.emit_te(compute, *arguments)

    def call_loops(
        self, function: tirx.PrimFunc, name: str, operands: list[relax.Expr], results: Results
    ) -> list[relax.Expr]:
        """Bind a call of a TensorIR function that is already scheduled, and return its results.

        Args:
            function: takes the operands, then the results.
            name: the function's name, made unique.
            operands: tensors.
            results: the shape and the dtype of each result.
        """
        callee = self._builder.add_func(function, name)
        types = [relax.TensorType(shape, dtype) for shape, dtype in results]
        if len(types) == 1:
            return [self(relax.call_tir(callee, operands, types[0]))]
        called = self(relax.call_tir(callee, operands, types))
        return [self(relax.TupleGetItem(called, place)) for place in range(len(types))]

    def size_from(self, count: relax.Expr) -> tirx.Var:
        """The value of an int64 tensor of one element as a size, which is known when the library runs."""
        row = count if shape_of(count) == (1,) else self(relax.op.reshape(count, (1,)))
        size = tirx.Var(f"{self.node.name}_size", "int64")
        self._builder.match_cast(self(relax.op.tensor_to_shape(row)), relax.ShapeType([size]))
        return size

    def checked_size_from(self, count: relax.Expr, sizes: ValueRanges[Any] = SIZES_OF_DATA) -> tirx.Var:
        """A size from data that may lie outside the range of sizes, which ends the run with an error.

        Memory of a negative or huge size would be smaller than the elements that the run writes to it. The
        size and the nearest one in range must match one variable.
        """

        def both(value: te.Tensor) -> te.Tensor:
            number = value(*[0] * len(value.shape)).astype("int64")
            least, most = (tirx.const(int(limit), "int64") for limit in (sizes.lower, sizes.upper))
            nearest = tirx.max(tirx.min(number, most), least)
            return te.compute((2,), lambda place: tirx.Select(place == 0, number, nearest), "both")

        size = tirx.Var(f"{self.node.name}_size", "int64")
        shape = self(relax.op.tensor_to_shape(self.tensor_expression(both, count)))
        self._builder.match_cast(shape, relax.ShapeType([size, size]))
        return size

    def size_of(self, expression: Any) -> tirx.Var:
        """A variable with the value of an expression of sizes."""

        def size(value: Any) -> te.Tensor:
            return te.compute((1,), lambda _: value.astype("int64"), "size")

        return self.size_from(self.tensor_expression(size, expression))

    def number_in(self, size: tirx.Var, factor: int, offset: int, known: tirx.Var | None) -> tirx.Var:
        """The number of which a size is ``factor * number + offset``; ``known`` if an earlier size has it.

        A run with another size ends with an error. TVM does not compare the number of elements of a reshape,
        so the size and the one that follows from the number must match one variable.
        """

        def parts(value: Any) -> te.Tensor:
            number = tirx.floordiv(value - offset, factor)
            wanted = number * factor + offset

            def part(place: Any) -> Any:
                size = tirx.Select(place == 1, value, wanted)
                return tirx.Select(place == 0, number, size).astype("int64")

            return te.compute((3,), part, "number")

        number = tirx.Var(f"{self.node.name}_number", "int64") if known is None else known
        checked = tirx.Var(f"{self.node.name}_size", "int64")
        shape = self(relax.op.tensor_to_shape(self.tensor_expression(parts, size)))
        self._builder.match_cast(shape, relax.ShapeType([number, checked, checked]))
        return number

    def stock(self) -> Any:
        """Translate the node by TVM's own converter.

        Raises:
            UntranslatableError: TVM has no converter for the operator.
        """
        if self._stock is None:
            raise UntranslatableError(f"TVM has no converter for {self.node.target}")
        return self._stock(self.node)

    def inlined(self, graph: GraphModule, operands: list[Any]) -> tuple[Any, ...]:
        """Translate a subgraph of the program in place, and return its results."""
        return self._importer.import_inline(graph, operands)

    def branch(
        self, condition: relax.Expr, then: GraphModule, otherwise: GraphModule, operands: list[Any]
    ) -> list[relax.Expr]:
        """Call one of two functions of the same operands, and return its results."""
        calls = self._importer.import_branches([then, otherwise], operands)
        return self._fields(self(relax.If(condition, *calls)))

    def loop(
        self, test: GraphModule, step: GraphModule, carried: list[Any], extra: list[Any]
    ) -> list[relax.Expr]:
        """Call a function that takes steps as long as a test of the tensors that they carry holds.

        Args:
            test: takes ``carried`` and ``extra``, and returns a boolean.
            step: takes the same, and returns new values of ``carried``.
            carried: the first values.
            extra: what stays the same: tensors and sizes.
        """
        return self._fields(self(self._importer.import_loop(test, step, carried, extra)))

    def traced(
        self,
        functions: Sequence[Callable[..., Any]],
        choose: Callable[[list[torch.Tensor]], list[torch.Tensor]],
    ) -> list[GraphModule]:
        """Trace functions of tensors to graphs that can be translated.

        Args:
            functions: each takes the chosen tensors.
            choose: takes the node's own operands, as fake tensors, and returns what to trace with.
        """
        given = pytree.tree_map(lambda value: getattr(value, "meta", {}).get("val", value), self.node.args)
        tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        with detect_fake_mode(tensors):
            examples = choose(tensors)
            return [make_fx(function, core_aten_decompositions())(*examples) for function in functions]

    def _fields(self, results: relax.Expr) -> list[relax.Expr]:
        return [self(relax.TupleGetItem(results, place)) for place in range(len(results.ty.fields))]

    @property
    def calls(self) -> tuple[InnerCall, ...]:
        """What the module computed whose call is being translated; empty for an operator."""
        return self.node.target.calls if isinstance(self.node.target, ModuleCall) else ()

    @property
    def results(self) -> list[torch.Tensor]:
        """The node's results in torch: fake tensors, with shapes and dtypes but no data."""
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
            UntranslatableError: a size is dynamic.
        """
        return fixed(tuple(self.results[0].shape), str(self.node.target))

    @property
    def sizes(self) -> list[Any] | None:
        """The shape of the first result in TensorIR; None if a dynamic size cannot be expressed."""
        return self._importer.expressed(self.results[0].shape)

    def reads(self, place: int) -> bool:
        """Whether the program reads the result at an index."""
        return any(user.args[1:] == (place,) for user in self.node.users)

    def operands(self) -> list[Any]:
        """The node's operands as torch values, for type promotion."""
        values = (getattr(leaf, "meta", {}).get("val", leaf) for leaf in pytree.tree_leaves(self.node.args))
        return [value for value in values if isinstance(value, torch.Tensor | int | float)]

    def full(self, shape: tuple[Any, ...], value: Any, dtype: str) -> relax.Expr:
        """A tensor filled with one value. Infinities are broadcast, because TVM's ``full`` refuses them."""
        if math.isfinite(value):
            return self(relax.op.full(shape, relax.const(wrapped(value, dtype), dtype), dtype))
        return self(relax.op.broadcast_to(relax.const(value, dtype), shape))

    def cast(self, value: Any, dtype: str) -> relax.Expr:
        """Cast a tensor. A number becomes a constant, and an expression of sizes a tensor of rank 0."""
        if is_number(value):
            return relax.const(wrapped(value, dtype), dtype)
        if is_size(value):
            return self.tensor_expression(
                lambda size: te.compute((), lambda: size.astype(dtype), "size"), value
            )
        return value if dtype_of(value) == dtype else self(relax.op.astype(value, dtype))


def dtype_of(tensor: relax.Expr) -> str:
    """The dtype of a tensor."""
    return str(tensor.ty.dtype)


def shape_of(tensor: relax.Expr) -> tuple[Any, ...]:
    """The shape of a tensor. A fixed size is an integer, a dynamic one an expression."""
    return tuple(getattr(size, "value", size) for size in tensor.ty.shape)


def fixed(sizes: tuple[Any, ...], what: str) -> tuple[int, ...]:
    """The sizes as integers.

    Raises:
        UntranslatableError: a size is dynamic; the message names ``what`` needs it fixed.
    """
    if not all(isinstance(size, int) for size in sizes):
        raise UntranslatableError(f"{what} with dynamic sizes ({', '.join(map(str, sizes))})")
    return tuple(int(size) for size in sizes)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front. A tensor of rank 0 counts as having one axis."""
    return axis % max(rank, 1)
