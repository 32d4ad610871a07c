"""Decomposes an exported program call by call: equal calls are traced once.

``ExportedProgram.run_decompositions`` traces the whole program again, twice, for the few operators that are
not core ones. Here each distinct call of such an operator is traced alone, with torch's own table, and the
result takes the place of every such call:

    relu_(batch_norm(conv2d(x, w0), …))              relu(native_batch_norm(convolution(x, w0), …)[0])
    relu_(batch_norm(conv2d(…, w1), …))    becomes   relu(native_batch_norm(convolution(…, w1), …)[0])
    2 calls each of 3 operators                      3 traces

The result is the graph that torch makes. Programs in which that could differ are left to torch.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.export.exported_program import (
    _detect_fake_mode_from_gm,
    _override_composite_implicit_decomp,
    _special_op_to_preserve_cia,
    _split_decomp_table_to_cia_and_python_decomp,
)
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from worker.compiler.torch_views import (
    changes_argument,
    is_composite,
    may_return_view,
    writes_inputs,
)
from worker.compiler.translation.constant_parts import evaluated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

_aten = torch.ops.aten

_LEARNING = (_aten.batch_norm, _aten.instance_norm)
"""Operators that write running statistics, their fourth and fifth argument, if the sixth says so."""

_STRIDED = (_aten.as_strided, _aten.as_strided_)
"""Operators that see where in memory their argument begins."""


class Table(NamedTuple):
    """torch's table of decompositions in the two parts that tracing needs."""

    composites: Mapping[Any, Callable[..., Any]]
    others: Mapping[Any, Callable[..., Any]]

    def leaves(self, function: torch._ops.OpOverload) -> bool:
        """Whether calls of an operator stay as they are."""
        if function in self.composites:
            return self.composites[function] is _special_op_to_preserve_cia
        return function not in self.others and not is_composite(function)


def split_table(table: Mapping[Any, Any]) -> Table:
    """Split a table of decompositions as torch does."""
    return Table(*_split_decomp_table_to_cia_and_python_decomp(dict(table)))


class UnsuitableError(Exception):
    """The program must be decomposed by torch."""


def decomposed_by_call(program: ExportedProgram, table: Table) -> ExportedProgram | None:
    """The program in the operators that the table leaves.

    Args:
        program: an exported program for inference.
        table: the decompositions.

    Returns:
        The program; its module calls are those of the given one. None for programs that torch must
        decompose: those with dynamic sizes, branches or loops, and those that change their inputs, or a
        tensor that may have another view.
    """
    mode = _detect_fake_mode_from_gm(program.graph_module)
    if mode is None or not _is_plain(program):
        return None
    known = evaluated(program)
    writer = _Writer(table, mode)
    try:
        with mode, _override_composite_implicit_decomp(dict(table.composites)), enable_python_dispatcher():
            inputs, calls = _split(program)
            for node in inputs:
                writer.write(node)
            constants = writer.write_constants(known)
            for node in calls:
                if node not in known:
                    writer.write(node)
    except UnsuitableError:
        return None
    writer.graph.eliminate_dead_code()
    module = torch.fx.GraphModule(program.graph_module, writer.graph)
    signature = _signature(program.graph_signature, constants, writer.graph)
    return program._update(module, signature, constants={**program.constants, **constants})


def _split(program: ExportedProgram) -> tuple[list[Node], list[Node]]:
    """The placeholders of parameters, buffers and constants, and everything else."""
    count = len(program.graph_signature.input_specs) - len(program.graph_signature.user_inputs)
    nodes = list(program.graph.nodes)
    return nodes[:count], nodes[count:]


def _is_plain(program: ExportedProgram) -> bool:
    """Whether the program only computes its outputs, from tensors of fixed sizes."""
    signature = program.graph_signature
    last = [spec.kind is InputKind.USER_INPUT for spec in signature.input_specs]
    is_usual = last == sorted(last) and len(signature.user_inputs) == sum(last)
    only_computes = all(spec.kind is OutputKind.USER_OUTPUT for spec in signature.output_specs)
    return is_usual and only_computes and all(map(_is_plain_node, program.graph.nodes))


def _is_plain_node(node: Node) -> bool:
    if node.op == "call_function" and node.target is not operator.getitem:
        function = node.target
        if not isinstance(function, torch._ops.OpOverload) or _reads_offset(node) or _learns(node):
            return False
    if node.op not in ("placeholder", "call_function", "output"):
        return False
    return all(map(_is_fixed, pytree.tree_leaves(node.meta.get("val"))))


def _learns(node: Node) -> bool:
    if getattr(node.target, "overloadpacket", None) not in _LEARNING:
        return False
    mean, variance, learns = node.args[3:6]
    return bool(learns) and (mean is not None or variance is not None)


def _reads_offset(node: Node) -> bool:
    """Whether a call depends on the offset of a tensor that may share its memory with others."""
    if getattr(node.target, "overloadpacket", None) not in _STRIDED:
        return False
    source = node.args[0]
    return not isinstance(source, torch.fx.Node) or may_return_view(source.target)


def _is_fixed(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return not isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | torch.ScriptObject)
    is_symbolic = any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))
    return not is_symbolic and not value.is_complex() and not value.is_quantized


@dataclass
class _Writer:
    """Writes the new graph. ``values`` has what stands for each node of the old one, after it was changed."""

    table: Table
    mode: Any
    graph: Graph = field(default_factory=torch.fx.Graph)
    values: dict[Node, Any] = field(default_factory=dict)
    _traces: dict[Any, Graph] = field(default_factory=dict)
    _functions: dict[Node, torch._ops.OpOverload] = field(default_factory=dict)
    _same: dict[Node, list[Node]] = field(default_factory=dict)

    def write(self, node: Node) -> None:
        """Write the next node of the old graph."""
        function = node.target
        if function is operator.getitem:
            self._write_item(node)
        elif not isinstance(function, torch._ops.OpOverload):
            copy = self.graph.node_copy(node, self.values.__getitem__)
            copy.name = node.name  # the signature has the names of placeholders, also those of Python's own
            self.values[node] = copy
        elif function is _aten.dropout_.default and node.args[2] is False:
            self.values[node] = self.values[node.args[0]]
        elif function._schema.is_mutable:
            self._write_change(node, function)
        else:
            self._write_call(node, function)

    def write_constants(self, known: Mapping[Node, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Write placeholders for the known values that other nodes read; returns these by name."""
        constants: dict[str, torch.Tensor] = {}
        for node, value in known.items():
            if any(user not in known for user in node.users):
                placeholder = self.graph.placeholder(f"c_{node.name}")
                placeholder.meta = {"val": self.mode.from_tensor(value)}
                constants[placeholder.name] = value
                self.values[node] = placeholder
        return constants

    def _write_item(self, node: Node) -> None:
        source, index = node.args
        found = self.values[source]
        if isinstance(found, list | tuple):
            self.values[node] = found[index]
        else:
            self.values[node] = self.graph.node_copy(node, self.values.__getitem__)

    def _write_change(self, node: Node, function: torch._ops.OpOverload) -> None:
        """A call that changes its first argument: the result stands for that tensor from here on."""
        same = self._same.setdefault(node.args[0], [node.args[0]])
        self._require_unshared(same, node)
        functional = _functional(function)
        _require_same_type(node, functional)
        self._write_call(node, functional)
        same.append(node)
        self._same[node] = same
        self.values |= dict.fromkeys(same, self.values[node])

    def _require_unshared(self, same: list[Node], node: Node) -> None:
        """Refuse a change of a tensor that another node may share.

        Args:
            same: the nodes that are the tensor, the one that made it first.
            node: the call that changes it.
        """
        before = [user for one in same for user in one.users if user in self.values and user not in same]
        functions = [self._functions.get(each, each.target) for each in (same[0], *before)]
        if node.kwargs or any(map(may_return_view, functions)):
            raise UnsuitableError

    def _write_call(self, node: Node, function: torch._ops.OpOverload) -> None:
        self._functions[node] = function
        if self.table.leaves(function):
            self.values[node] = self._copied(node, function)
            return
        tensors: list[Node] = []

        def note(argument: Node) -> Node:
            tensors.append(argument)
            return argument

        map_arg((node.args, node.kwargs), note)
        trace = self._trace(function, *_given(node))
        inside = dict(zip(trace.find_nodes(op="placeholder"), map(self.values.get, tensors), strict=True))
        for step in trace.nodes:
            if step.op == "output":
                self.values[node] = map_arg(step.args[0], inside.__getitem__)
            elif step.op == "call_function":
                inside[step] = self.graph.node_copy(step, inside.__getitem__)
                inside[step].meta = {**node.meta, "val": step.meta.get("val")}

    def _copied(self, node: Node, function: torch._ops.OpOverload) -> Node:
        if function is node.target:
            return self.graph.node_copy(node, self.values.__getitem__)
        args = map_arg(node.args, self.values.__getitem__)
        name = function.overloadpacket.__name__
        copy = self.graph.create_node("call_function", function, args, name=name)
        copy.meta = dict(node.meta)
        return copy

    def _trace(self, function: torch._ops.OpOverload, args: Any, kwargs: Any) -> Graph:
        leaves, structure = pytree.tree_flatten((args, kwargs))
        key = (function, str(structure), tuple(map(_described, leaves)))
        if key not in self._traces:
            self._traces[key] = self._traced(function, leaves, structure)
        return self._traces[key]

    def _traced(self, function: torch._ops.OpOverload, leaves: list[Any], structure: Any) -> Graph:
        def call(*tensors: torch.Tensor) -> Any:
            left = iter(tensors)
            filled = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(filled, structure)
            return function(*args, **kwargs)

        inputs = [_like(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        table = dict(self.table.others)
        trace = make_fx(call, decomposition_table=table)(*inputs).graph
        if any(map(writes_inputs, trace.nodes)):
            raise UnsuitableError  # as a batch norm does that still learns
        if any(map(changes_argument, trace.nodes)):
            trace = make_fx(dispatch_functionalize(call), decomposition_table=table)(*inputs).graph
        if not all(map(_may_be_inlined, trace.nodes)):
            raise UnsuitableError
        return trace


def _given(node: Node) -> tuple[Any, Any]:
    """The arguments of a call, with tensors instead of nodes."""
    return map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])


def _functional(function: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operator that returns what another one writes into its first argument."""
    name = function._schema.name.partition("::")[2]
    if function.namespace != "aten":
        raise UnsuitableError
    found = getattr(getattr(_aten, name.removesuffix("_"), None), function._overloadname, None)
    if not name.endswith("_") or found is None:
        raise UnsuitableError
    if found._schema.is_mutable or any(value.alias_info is not None for value in found._schema.returns):
        raise UnsuitableError
    if _argument_types(found) != _argument_types(function):  # pow_.Scalar takes what pow.Tensor_Scalar takes
        raise UnsuitableError
    return found


def _argument_types(function: torch._ops.OpOverload) -> list[str]:
    return [str(argument.type) for argument in function._schema.arguments]


def _require_same_type(node: Node, functional: torch._ops.OpOverload) -> None:
    """Refuse a functional operator whose result is another kind of tensor than the one that is changed."""
    args, kwargs = _given(node)
    result, changed = functional(*args, **kwargs), args[0]
    if not isinstance(result, torch.Tensor) or (result.dtype, result.shape) != (changed.dtype, changed.shape):
        raise UnsuitableError


def _described(leaf: Any) -> Any:
    """What distinguishes a call's argument from others."""
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
    return type(leaf), str(leaf)


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _may_be_inlined(step: Node) -> bool:
    if step.op in ("placeholder", "output"):
        return True
    return step.op == "call_function" and not changes_argument(step) and _is_plain_node(step)


def _signature(
    signature: ExportGraphSignature, constants: Iterable[str], graph: Graph
) -> ExportGraphSignature:
    """The signature with more constants, and with the names that the outputs have in the new graph."""
    outputs: Iterable[Any] = graph.output_node().args[0]
    specs = [_renamed(spec, output) for spec, output in zip(signature.output_specs, outputs, strict=True)]
    count = len(signature.input_specs) - len(signature.user_inputs)
    held, given = signature.input_specs[:count], signature.input_specs[count:]
    added = [InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), name) for name in constants]
    return ExportGraphSignature([*held, *added, *given], specs)


def _renamed(spec: OutputSpec, output: Any) -> OutputSpec:
    if not isinstance(output, torch.fx.Node):
        return spec
    return OutputSpec(spec.kind, TensorArgument(output.name), spec.target)
