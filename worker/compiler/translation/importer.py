"""TVM's importer, with the registry's rules ahead of its own converters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from worker.compiler.translation.builders import ExpressionBuilder, NamingBuilder
from worker.compiler.translation.complex_parts import has_rule
from worker.compiler.translation.dtypes import dtype_name
from worker.compiler.translation.emitter import Emitter, dtype_of, shape_of
from worker.compiler.translation.errors import UntranslatableError, advice_on
from worker.compiler.translation.loops import LoopWriter
from worker.compiler.translation.module_calls import ModuleCall
from worker.compiler.translation.names import is_complex, operator_name, rule_name
from worker.compiler.translation.registry import rule_book
from worker.compiler.translation.symbolic_shapes import SymbolicShapes, is_size, substituted, variables_in
from worker.tensors import as_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Node

    from worker.compiler.translation.builders import Express
    from worker.compiler.translation.rule import ModuleRule, Rule

STOCK_NAMESPACES = ("aten", "torchvision")
"""Namespaces of TVM's converters, which match by name alone and so would take other libraries' operators."""


class Importer(ExportedProgramImporter):
    """Translates each node by its rule, else by TVM's converter.

    Each result must have torch's dtype and shape. A converter that returns another type is refused here,
    where the operator's source location is known. Results with dynamic sizes get torch's shape expressions,
    because TVM's own inference loses some.
    """

    def __init__(self, expressions: Mapping[str, Express] | None = None) -> None:
        """Create an importer for one program.

        Args:
            expressions: if given, each operator becomes a tensor expression: the one listed under its name,
                else TVM's own. If None, operators stay Relax operators.
        """
        self._expressions = expressions
        super().__init__()
        self.reached: Node | None = None
        self._builder = NamingBuilder()
        self._symbols: SymbolicShapes | None = None
        self._functions = 0
        self._tensors: Mapping[str, torch.Tensor] = {}
        self._fixed: dict[relax.Var, torch.Tensor] = {}
        self._unsolved: dict[str, dict[Any, tirx.Var]] = {}

    @property
    def block_builder(self) -> relax.BlockBuilder:
        """The builder that all converters and rules emit with."""
        return self._builder

    @block_builder.setter
    def block_builder(self, _plain: relax.BlockBuilder) -> None:
        """Replace the builder that TVM's importer creates for a program."""
        self._builder = NamingBuilder() if self._expressions is None else ExpressionBuilder(self._expressions)

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The source node of each variable, by the variable's name."""
        return self._builder.nodes

    def from_exported_program(self, exported_program: Any, *options: Any, **named: Any) -> tvm.IRModule:
        """Translate a program, with the tensors that it does not hide bound.

        TVM would look through all inputs for each tensor to bind.
        """
        tensors = {
            **exported_program.constants,
            **dict(exported_program.named_buffers()),
            **dict(exported_program.named_parameters()),
        }
        program = getattr(exported_program, "program", exported_program)
        self._tensors = tensors
        module = super().from_exported_program(_WithoutTensors(program), *options, **named)
        values = {
            spec.arg.name: self._convert_pytorch_tensor_to_tvm(tensors[spec.target])
            for spec in program.graph_signature.input_specs
            if spec.target in tensors
        }
        return relax.transform.BindParams("main", values)(module)

    def create_input_vars(self, exported_program: Any) -> Any:
        """Create the input variables, whose shapes define the symbols."""
        program = getattr(exported_program, "program", exported_program)
        found = super().create_input_vars(program)
        self._symbols = SymbolicShapes(found[1].values())
        self._take_sizes(found[1])
        self._fixed = {
            found[0][spec.arg.name]: self._tensors[spec.target]
            for spec in program.graph_signature.input_specs
            if spec.target in self._tensors and spec.arg.name in found[0]
        }
        return found

    def _take_sizes(self, inputs: dict[str, relax.Var]) -> None:
        """Give each size that TVM cannot solve for its symbol a symbol of its own.

        It solves no expressions, so it needs an input that has the symbol itself as a size.
        """
        known = [size for each in inputs.values() for size in each.ty.shape if isinstance(size, tirx.Var)]
        for name, each in inputs.items():
            open_axes = {
                axis: tirx.Var(f"{name}_{axis}", "int64")
                for axis, size in enumerate(each.ty.shape)
                if not all(variable in known for variable in variables_in([size]))
            }
            if open_axes:
                self._unsolved[name] = {each.ty.shape[axis]: own for axis, own in open_axes.items()}
                shape = [open_axes.get(axis, size) for axis, size in enumerate(each.ty.shape)]
                inputs[name] = relax.Var(name, relax.TensorType(shape, each.ty.dtype))

    def _input(self, node: Node, given: relax.Var) -> relax.Var:
        """An input in the sizes of the program's symbols, after those that its sizes define."""
        unsolved = self._unsolved.get(node.name)
        if unsolved is None or self._symbols is None:
            return given
        for expression, size in unsolved.items():
            self._symbols.solve(expression, size, self._emitter(node).number_in)
        return self.block_builder.emit(relax.op.reshape(given, self.expressed(node.meta["val"].shape)))

    def can_translate(self, node: Node) -> bool:
        """Whether a call has a rule or a converter."""
        if isinstance(node.target, ModuleCall):
            return True
        if is_complex(node):
            return has_rule(node, rule_book().of_complex)
        return rule_name(node) in rule_book().rules or self._stock_of(node) is not None

    def convert(self, node: Node) -> Any:
        """Translate one call."""
        if isinstance(node.target, ModuleCall):
            return self._by_rule(node.target.rule, self._emitter(node))
        rule, stock = rule_book().rules.get(rule_name(node)), self._stock_of(node)
        if rule is not None:
            return self._by_rule(rule, self._emitter(node, stock))
        if stock is None:
            raise UntranslatableError(f"{rule_name(node)} has no rule")
        return self._bound(stock(node))

    def _emitter(self, node: Node, stock: Callable[[Node], Any] | None = None) -> Emitter:
        return Emitter(self.block_builder, node, stock, self)

    def _bound(self, result: Any) -> Any:
        """A call as a variable, which has a type: TVM's converters leave some calls bare."""
        return self.block_builder.emit(result) if isinstance(result, relax.Call) else result

    def value_of(self, argument: Any) -> Any:
        """An argument of a node, with its nodes replaced by their translations."""
        return self._retrieve_args(argument)

    def import_inline(self, graph: torch.fx.GraphModule, operands: list[Any]) -> tuple[Any, ...]:
        """Translate a subgraph in place, and return its results.

        Args:
            graph: the subgraph.
            operands: the values of its placeholders.
        """
        outside = self.env
        self.env: dict[Node, Any] = {}
        try:
            placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
            self.env.update(zip(placeholders, operands, strict=True))
            return self._translate_fx_graph(graph, list(graph.graph.nodes), {})
        finally:
            self.env = outside

    def import_branches(
        self, graphs: Sequence[torch.fx.GraphModule], operands: list[Any]
    ) -> list[relax.Call]:
        """Write a function for each subgraph, and return the calls."""
        calls = []
        for graph in graphs:
            function, arguments = self._function(graph, operands, "branch")
            calls.append(relax.Call(function, arguments))
        return calls

    def import_loop(
        self, test: torch.fx.GraphModule, step: torch.fx.GraphModule, carried: list[Any], extra: list[Any]
    ) -> relax.Call:
        """Write the function of a loop, and return the call, which gives the last values of ``carried``.

        Args:
            test: takes ``carried`` and ``extra``, and returns a boolean.
            step: takes the same, and returns new values of ``carried``.
            carried: tensors of the types that the steps carry.
            extra: what stays the same: tensors and sizes.
        """
        operands = [*carried, *extra]
        holds, _ = self._function(test, operands, "loop_test", len(carried))
        next_of, arguments = self._function(step, operands, "loop_body", len(carried))
        types = [argument.ty for argument in arguments]
        loop = LoopWriter(self._builder, holds, next_of, types, len(carried)).write()
        return relax.Call(loop, arguments)

    def _function(
        self, graph: torch.fx.GraphModule, operands: list[Any], name: str, kept: int = 0
    ) -> tuple[tvm.ir.GlobalVar, list[relax.Expr]]:
        """Write a subgraph as a function of Relax, and return it with its arguments.

        Its parameters are the tensors among the operands, followed by the symbols in all of them as one
        shape. Constants are in the function, where passes can fold and pack them; not the first ``kept``.
        """
        fixed = [None] * kept + [self._constant_of(operand) for operand in operands[kept:]]
        arguments = [
            operand
            for operand, constant in zip(operands, fixed, strict=True)
            if constant is None and not is_size(operand)
        ]
        sizes = [operand for operand in operands if is_size(operand)]
        symbols = variables_in([*sizes, *(size for each in arguments for size in each.ty.shape)])
        own = {symbol: tirx.Var(symbol.name, symbol.ty) for symbol in symbols}
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        outside, known = self.env, self._symbols
        self.env = {}
        parameters = []
        for node, operand, constant in zip(placeholders, operands, fixed, strict=True):
            if constant is not None:
                self.env[node] = constant
            elif is_size(operand):
                self.env[node] = substituted(operand, own)
            else:
                shape = [substituted(size, own) for size in operand.ty.shape]
                parameters.append(relax.Var(node.name, relax.TensorType(shape, operand.ty.dtype)))
                self.env[node] = parameters[-1]
        if symbols:
            parameters.append(relax.Var("sizes", relax.ShapeType(list(own.values()))))
            arguments.append(relax.ShapeExpr(symbols))
        self._symbols = None if known is None else known.within(own)
        try:
            self._functions += 1
            unique = f"{name}_{self._functions}"  # which becomes the symbol, too
            with self._builder.function(unique, parameters):
                results = self._translate_fx_graph(graph, list(graph.graph.nodes), {})
                outputs = [self._builder.emit(result) for result in results]
                function = self._builder.emit_func_output(relax.Tuple(outputs))
        finally:
            self.env, self._symbols = outside, known
        return function, arguments

    def _constant_of(self, operand: Any) -> relax.Expr | None:
        """The constant that an operand is, or that will be bound to it."""
        if isinstance(operand, GenericConst):
            return operand
        tensor = self._fixed.get(operand) if isinstance(operand, relax.Var) else None
        return None if tensor is None else relax.const(self._convert_pytorch_tensor_to_tvm(tensor))

    @staticmethod
    def _convert_pytorch_tensor_to_tvm(tensor_value: torch.Tensor) -> Any:
        """A contiguous tensor, since TVM ignores strides; a copy if the memory is not aligned for TVM."""
        dense = tensor_value if tensor_value.layout == torch.strided else tensor_value.to_dense()
        plain = dense.detach().contiguous()
        try:
            return tvm.runtime.from_dlpack(plain)
        except (RuntimeError, BufferError):
            return tvm.runtime.tensor(as_array(plain))

    def _check_unsupported_func_type(self, nodes: Iterable[Node]) -> None:
        """Do nothing: ``refuse_unsupported`` already checked, with source locations."""

    def _translate_fx_graph(
        self,
        graph_module: Any,
        nodes: Iterable[Node],
        inputs_vars: dict[str, relax.Var],
        custom_ops: set[str] | None = None,
    ) -> tuple[Any, ...]:
        for node in nodes:
            if node.op == "placeholder":
                if node.name in inputs_vars:
                    self.env[node] = self._input(node, inputs_vars[node.name])
            elif node.op == "get_attr":
                self.env[node] = _attribute(graph_module, str(node.target))
            elif node.op == "call_function":
                self.reached = self._builder.node = node
                result = self._shaped(node, self.convert(node))
                check_type(node, result)
                self.env[node] = result
            else:
                return self._flatten_output_args(self.value_of(node.args[0]))
        raise ValueError("the graph has no output node")

    def expressed(self, sizes: Any) -> list[Any] | None:
        """A torch shape in TensorIR; None if a size cannot be expressed."""
        return None if self._symbols is None else self._symbols.shape_of(sizes)

    def _shaped(self, node: Node, result: Any) -> Any:
        value = node.meta.get("val")
        if self._symbols is None:
            return result
        if isinstance(value, torch.SymInt) and isinstance(result, tirx.Expr):
            self._symbols.learn([value], [result], self._emitter(node).size_of)
            found = self._symbols.shape_of([value])
            return result if found is None else found[0]
        if not isinstance(result, relax.Var) or not isinstance(value, torch.Tensor):
            return result
        is_known = isinstance(result.ty.shape, relax.ShapeExpr)
        sizes = shape_of(result) if is_known else ()
        if all(isinstance(size, int) for size in (*value.shape, *sizes)):
            return result
        if is_known:
            self._symbols.learn(value.shape, result.ty.shape, self._emitter(node).size_of)
        shape = self._symbols.shape_of(value.shape)
        if shape is None or self._symbols.are_equal(result.ty.shape, shape):
            return result
        if not is_known:
            raise ValueError(f"the shape of {node.name} is unknown")
        # match_cast would be clearer, but CanonicalizeBindings crashes on casts of symbols (TVM 0.27).
        return self.block_builder.emit(relax.op.reshape(result, shape))

    def _by_rule(self, rule: Rule | ModuleRule, emit: Emitter) -> Any:
        positional, named = self._arguments(emit.node, rule)
        result = rule.translate(emit, *positional, **named)
        if isinstance(result, tuple | list):
            return tuple(None if part is None else emit(part) for part in result)
        if isinstance(emit.node.meta.get("val"), torch.SymInt):
            return result
        return emit(result) if isinstance(result, relax.Expr) else result

    def _arguments(self, node: Node, rule: Rule | ModuleRule) -> tuple[list[Any], dict[str, Any]]:
        """All arguments of a call, including defaults of its operator's schema."""
        if not isinstance(node.target, torch._ops.OpOverload):
            given_by_name = {name: self.value_of(value) for name, value in node.kwargs.items()}
            wanted = {name: value for name, value in given_by_name.items() if name in rule.keywords}
            return [self.value_of(argument) for argument in node.args], wanted
        given = list(node.args)
        positional, named = [], {}
        for argument in node.target._schema.arguments:
            value = given.pop(0) if given else node.kwargs.get(argument.name, argument.default_value)
            if not argument.kwarg_only:
                positional.append(self.value_of(value))
            elif argument.name in rule.keywords:
                named[argument.name] = self.value_of(value)
        return positional, named

    def _stock_of(self, node: Node) -> Callable[[Node], Any] | None:
        target = node.target
        if is_complex(node) or advice_on(node) is not None:
            return None
        if isinstance(target, torch._ops.OpOverload) and target.namespace not in STOCK_NAMESPACES:
            return None
        converter = self.convert_map.get(getattr(target, "__name__", str(target)))
        return None if converter is None else partial(converter)


@dataclass(frozen=True)
class _ProgramView:
    program: ExportedProgram

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)


class _WithoutTensors(_ProgramView):
    """A program that hides all its tensors from TVM's importer."""

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        return {}

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(())

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(())


@dataclass(frozen=True)
class _Unbound(_ProgramView):
    """A program that hides some tensors, so that they stay arguments of ``main``."""

    names: frozenset[str]

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._bound(self.program.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._bound(self.program.named_buffers())

    def _bound(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name, tensor) for name, tensor in tensors if name not in self.names)


def unbound(program: ExportedProgram, names: frozenset[str]) -> ExportedProgram:
    """The program, with the tensors of these names left as arguments of ``main``."""
    return cast("ExportedProgram", _Unbound(program, names)) if names else program


def check_type(node: Node, result: Any) -> None:
    """Compare a node's translation with torch's result.

    Raises:
        TypeError: shape or dtype differ. Dynamic sizes are not compared.
    """
    value = node.meta.get("val")
    if isinstance(node.target, ModuleCall):
        _check_count(node.target, value, result)
    if isinstance(value, torch.Tensor) and isinstance(result, int | float | str | torch.Tensor | None):
        raise TypeError(f"{operator_name(node)} was translated to {type(result).__name__}, not an expression")
    if not isinstance(value, torch.Tensor) or not isinstance(getattr(result, "ty", None), relax.TensorType):
        return
    found, wanted = dtype_of(result), dtype_name(value.dtype)
    if found != wanted:
        raise TypeError(f"{operator_name(node)} was translated to {found}, but torch gives {wanted}")
    if result.ty.shape is None:
        return
    shape, expected = shape_of(result), tuple(value.shape)
    sizes = zip(shape, expected, strict=False)
    differs = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
    if len(shape) != len(expected) or differs:
        raise TypeError(f"{operator_name(node)} was translated to shape {shape}, but torch gives {expected}")


def _check_count(module: ModuleCall, value: Any, result: Any) -> None:
    wanted = len(value) if isinstance(value, tuple) else 1
    found = len(result) if isinstance(result, tuple) else 1
    if found != wanted or isinstance(value, tuple) != isinstance(result, tuple):
        raise TypeError(f"the rule for {module} gave {found} results, but the module gives {wanted}")


def _attribute(graph_module: Any, path: str) -> Any:
    value = graph_module
    for name in path.split("."):
        value = getattr(value, name)
    if isinstance(value, torch.Tensor):
        return relax.const(Importer._convert_pytorch_tensor_to_tvm(value))
    return value
