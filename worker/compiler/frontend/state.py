"""State as inputs and outputs: buffers and attributes that a run changes.

An exported program lists the buffers that it mutates. In its functional form, each is a placeholder for the
value before the run, and one of the results for the value after it. ``expose_state`` makes that placeholder
an input and that result an output::

    (weight, hidden*, x) -> (hidden', y)        hidden* is a buffer that the program mutates
    (weight, x, state.hidden) -> (y, state.hidden')
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import Node

from bessemer.contract.tensor import MAX_TENSOR_NAME, TENSOR_NAME
from worker.compiler.frontend.program_edits import with_signature
from worker.compiler.frontend.torchscript.module_state import memory_of
from worker.compiler.torch_costs import linear_torch
from worker.compiler.torch_views import writes_inputs
from worker.compiler.values import BufferUse
from worker.tensors import as_array

_PREFIX = "state."
_DIGEST_CHARACTERS = 8
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]", re.ASCII)


def state_name(buffer: str) -> str:
    """The name of the input and the output that hold a buffer.

    Names of buffers can be longer than those of tensors, and have other characters: a key of an
    ``nn.ModuleDict`` may be ``conv-1``. Such a name ends with a digest, since others may differ only there.
    """
    name = _PREFIX + buffer
    if TENSOR_NAME.fullmatch(name):
        return name
    digest = sha256(buffer.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{_NOT_IN_NAMES.sub('_', name)[: MAX_TENSOR_NAME - 1 - len(digest)]}_{digest}"


@dataclass(frozen=True)
class StatefulProgram:
    """A program whose state is its last inputs and its last outputs, in the order of ``buffers``."""

    program: ExportedProgram
    buffers: tuple[str, ...]
    use: BufferUse

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs and outputs that hold the state."""
        return tuple(map(state_name, self.buffers))

    def initial(self, fresh: nn.Module) -> tuple[torch.Tensor, ...]:
        """The state before the first run.

        An attribute that the first run creates, or whose shape it changes, begins with zeros here. Compare
        runs with the original to learn whether that is right.

        Args:
            fresh: the model, which has not run.
        """
        nodes = {node.name: node for node in self.program.graph.find_nodes(op="placeholder")}
        held = [
            nodes[name].meta["val"] for name in self.program.graph_signature.user_inputs[-len(self.buffers) :]
        ]
        return tuple(
            held_or_zeros(fresh, name, value) for name, value in zip(self.buffers, held, strict=True)
        )


def expose_state(program: ExportedProgram, shared: frozenset[str] = frozenset()) -> StatefulProgram:
    """The program with its state as inputs and outputs, or as it is if its outputs depend on no state.

    A buffer that a run changes without effect on the outputs of later runs, such as a counter, is not state,
    unless it is shared.

    Args:
        program: takes and returns flat tuples of tensors.
        shared: names in the user's model of buffers that are state in any case, as other entry points use
            them. Buffers that the program only reads return unchanged.
    """
    functional = program
    if any(map(writes_inputs, program.graph.nodes)) or program.graph_signature.buffers_to_mutate:
        _join_shared_memory(program)
        _copy_stored_values(program)
        with linear_torch():
            functional = program.run_decompositions({})
    used, changed = _used(functional), set(functional.graph_signature.buffers_to_mutate.values())
    effective = _effective_state(functional)
    buffers = tuple(buffer for buffer in used if buffer in effective or buffer in shared)
    return StatefulProgram(
        program=_exposed(functional, buffers) if buffers else program,
        buffers=buffers,
        use=BufferUse(frozenset(used), frozenset(changed.intersection(used))),
    )


def shared_state(uses: Sequence[BufferUse]) -> frozenset[str]:
    """The buffers that one entry point changes and another uses."""
    written = frozenset[str]().union(*(use.writes for use in uses))
    count = Counter(name for use in uses for name in use.reads | use.writes)
    return frozenset(name for name in written if count[name] > 1)


def _used(program: ExportedProgram) -> tuple[str, ...]:
    """The buffers that the program reads or changes."""
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    changed = set(signature.buffers_to_mutate.values())
    return tuple(
        buffer
        for name, buffer in signature.inputs_to_buffers.items()
        if placeholders[name].users or buffer in changed
    )


def _join_shared_memory(program: ExportedProgram) -> None:
    """Read one input in place of others that are the same memory: tied weights, a cache with two names.

    torch cannot make a program functional that writes to memory which two of its inputs share.
    """
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    values = {**program.state_dict, **program.constants}
    firsts: dict[object, Node] = {}
    for held in (
        signature.inputs_to_buffers,
        signature.inputs_to_parameters,
        signature.inputs_to_lifted_tensor_constants,
    ):
        for placeholder, name in held.items():
            node = placeholders[placeholder]
            first = firsts.setdefault(memory_of(values[name]), node)
            if first is not node:
                node.replace_all_uses_with(first)
                own = program.constants if name in program.constants else program.state_dict
                own[name] = _distinct(values[name])
    program.graph_module.recompile()


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().clone()
    return nn.Parameter(copy, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copy


def _copy_stored_values(program: ExportedProgram) -> None:
    """Copy what becomes the whole value of a buffer, since torch expects each result at one place only."""
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        held, stored = node.args[:2]
        with program.graph.inserting_before(node):
            copy = program.graph.call_function(torch.ops.aten.clone.default, (stored,))
        copy.meta = dict(stored.meta)
        node.args = (held, copy)
    program.graph_module.recompile()


def held_or_zeros(model: nn.Module, name: str, like: torch.Tensor) -> torch.Tensor:
    """A copy of a model's buffer or attribute; zeros if it has another shape or dtype than ``like``."""
    for _, value in _held(model, name):
        if isinstance(value, torch.Tensor) and value.shape == like.shape and value.dtype == like.dtype:
            return value.detach().clone()
    return torch.zeros(tuple(like.shape), dtype=like.dtype)


class SharedTensors:
    """The tensors that models share by name, while the models run in turn.

    A model shares a buffer or attribute unless it begins with another value than an earlier model's.
    """

    def __init__(self, models: Sequence[nn.Module], names: Collection[str]) -> None:
        self._values: dict[str, torch.Tensor] = {}
        self._own: dict[nn.Module, list[str]] = {}
        for model in models:
            own = {*(name for name, _ in model.named_buffers()), *names}
            self._own[model] = [name for name in sorted(own) if self._begins_equal(model, name)]

    @torch.inference_mode()
    def give(self, model: nn.Module) -> None:
        """Let a model continue where the last one ended."""
        for name in self._own[model]:
            for owner, value in _held(model, name):
                if name in self._values:
                    _set(owner, name.rpartition(".")[2], value, self._values[name].clone())

    def take(self, model: nn.Module) -> None:
        """Keep what a run of the model left."""
        for name in self._own[model]:
            for _, value in _held(model, name):
                if value is not None:
                    self._values[name] = value.clone()

    def _begins_equal(self, model: nn.Module, name: str) -> bool:
        return all(
            value is None or _bits(value) == _bits(self._values.setdefault(name, value.clone()))
            for _, value in _held(model, name)
        )


def _held(model: nn.Module, name: str) -> list[tuple[nn.Module, torch.Tensor | None]]:
    """The submodule with a tensor or None of a name, and that value; empty if there is none."""
    *path, leaf = name.split(".")
    owner = reduce(lambda owner, part: getattr(owner, part, None), path, model)
    value = getattr(owner, leaf, "")
    return [(owner, value)] if isinstance(value, torch.Tensor | None) else []


def _set(owner: nn.Module, leaf: str, held: torch.Tensor | None, value: torch.Tensor) -> None:
    """Set an attribute of a script, which may be another's tensor; write to tensors of other modules."""
    if held is None or isinstance(owner, torch.jit.ScriptModule):
        setattr(owner, leaf, value)
    else:
        held.copy_(value)


def _bits(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.dtype, tensor.shape, as_array(tensor).tobytes()


def _effective_state(program: ExportedProgram) -> tuple[str, ...]:
    """The mutated buffers on whose old values an output depends, or the new value of such a buffer."""
    signature = program.graph_signature
    placeholders = {buffer: name for name, buffer in signature.inputs_to_buffers.items()}
    results = {buffer: name for name, buffer in signature.buffers_to_mutate.items()}
    nodes = {node.name: node for node in program.graph.nodes}
    reached = _sources([nodes[name] for name in signature.user_outputs if isinstance(name, str)])
    found: set[str] = set()
    while new := {buffer for buffer in results if placeholders[buffer] in reached} - found:
        found |= new
        reached |= _sources([nodes[results[buffer]] for buffer in new])
    return tuple(buffer for buffer in results if buffer in found)


def _sources(nodes: list[Node]) -> set[str]:
    """The names of the nodes on which some nodes depend, and their own."""
    seen: set[Node] = set()
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            nodes.extend(node.all_input_nodes)
    return {node.name for node in seen}


def _exposed(program: ExportedProgram, buffers: tuple[str, ...]) -> ExportedProgram:
    signature = program.graph_signature
    kept = [spec for spec in signature.input_specs if spec.target not in buffers]
    states = {spec.target: spec for spec in signature.input_specs if spec.target in buffers}
    inputs = [*kept, *(InputSpec(InputKind.USER_INPUT, states[name].arg, None) for name in buffers)]
    results = {
        spec.target: spec.arg for spec in signature.output_specs if spec.kind == OutputKind.BUFFER_MUTATION
    }
    user = [spec for spec in signature.output_specs if spec.kind == OutputKind.USER_OUTPUT]
    outputs = [
        *user,
        *(OutputSpec(OutputKind.USER_OUTPUT, results.get(name, states[name].arg), None) for name in buffers),
    ]
    graph = _reordered(program.graph, inputs, outputs)
    return with_signature(program, graph, inputs, outputs)


def _reordered(graph: torch.fx.Graph, inputs: list[InputSpec], outputs: list[OutputSpec]) -> torch.fx.Graph:
    """A copy of the graph with its placeholders and results in the order of the specs."""
    copies: dict[Node, Node] = {}
    new = torch.fx.Graph()
    new.output(new.graph_copy(graph, copies))
    by_name = {old.name: copy for old, copy in copies.items()}
    first_call = next(node for node in new.nodes if node.op != "placeholder")
    for spec in inputs:
        first_call.prepend(by_name[spec.arg.name])
    (result,) = new.find_nodes(op="output")
    result.args = (tuple(by_name[spec.arg.name] for spec in outputs),)
    return new
