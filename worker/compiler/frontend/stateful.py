"""Why a model gives other outputs when it runs again: the state that it keeps, and its random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.frontend.torchscript.graph import Step, parse_graph
from worker.compiler.source_locations import place_of
from worker.errors import JobError

MAX_TOLD = 3
STATE = "take the state as an input and return its new value as an output"
RANDOM = "take the random numbers as an input"


@dataclass(frozen=True)
class Cause:
    """One thing that makes two runs differ, in words, and its place in the model."""

    said: str
    place: SourcePlace


def runs_differ(model: object, program: ExportedProgram) -> JobError:
    """``model-stateful`` with every cause that the model or its program shows.

    Args:
        model: what ran twice. A script module shows which attributes it sets.
        program: the same model, exported.
    """
    state = tuple(dict.fromkeys((*_set_attributes(model), *_written_buffers(program))))
    random = tuple(_random_operators(program))
    told = [*_told(state, STATE), *_told(random, RANDOM)]
    why = "; ".join(told) or "it draws random numbers, keeps state, or is in training mode"
    detail = f"two runs of the model on the same inputs differ: {why}"
    return JobError(ErrorCode.MODEL_STATEFUL, detail, tuple(cause.place for cause in (*state, *random)))


def _told(causes: tuple[Cause, ...], remedy: str) -> Iterator[str]:
    if causes:
        more = f", and {len(causes) - MAX_TOLD} more" if len(causes) > MAX_TOLD else ""
        yield f"{', '.join(cause.said for cause in causes[:MAX_TOLD])}{more}: {remedy}"


def _set_attributes(model: object) -> Iterator[Cause]:
    """The attributes that a script's ``forward`` assigns, submodules' too."""
    if not isinstance(model, torch.jit.ScriptModule):
        return
    body = parse_graph(model.inlined_graph)
    paths = {body.inputs[0]: ""}
    makers: dict[str, Step] = {}
    for step in body.all_steps():
        makers.update(dict.fromkeys(step.outputs, step))
        if step.kind == "prim::GetAttr" and step.inputs[0] in paths:
            paths[step.outputs[0]] = _joined(paths[step.inputs[0]], step.name)
        if step.kind == "prim::SetAttr" and step.inputs[0] in paths:
            # torch records no line for an assignment, but one for the value
            place = makers.get(step.inputs[1], step).place()
            yield _state_cause(_joined(paths[step.inputs[0]], step.name), place)


def _written_buffers(program: ExportedProgram) -> Iterator[Cause]:
    """The buffers that the program writes: in place, or as extra outputs."""
    signature = program.graph_signature
    for node in program.graph.nodes:
        target = _buffer_of(_written(node), signature.inputs_to_buffers)
        name = target or signature.buffers_to_mutate.get(node.name)
        if name is not None:
            yield _state_cause(name, place_of(node))


def _written(node: Node) -> object:
    """The argument that an operator writes in place, if it does."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    arguments = zip(node.target._schema.arguments, node.args, strict=False)
    written = (value for argument, value in arguments if argument.alias_info and argument.alias_info.is_write)
    return next(written, None)


def _buffer_of(value: object, buffers: dict[str, str]) -> str | None:
    """The buffer that a tensor is, or is a view of."""
    while isinstance(value, Node):
        if value.op == "placeholder":
            return buffers.get(value.name)
        if not isinstance(value.target, torch._ops.OpOverload) or not _shares_memory(value.target):
            return None
        value = value.args[0]
    return None


def _shares_memory(operator: torch._ops.OpOverload) -> bool:
    return any(result.alias_info is not None for result in operator._schema.returns)


def _random_operators(program: ExportedProgram) -> Iterator[Cause]:
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            place = place_of(node)
            yield Cause(f"{place} draws random numbers", place)


def _state_cause(name: str, place: SourcePlace) -> Cause:
    module_path = name.rpartition(".")[0] or None
    found = SourcePlace(module_path=module_path, file=place.file, line=place.line)
    source = f" ({place.file}:{place.line})" if place.file and place.line else ""
    return Cause(f"forward changes '{name}'{source}", found)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
