"""Refuses models whose outputs change between runs: state, and batch norms in training mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.frontend.seeds import arguments_of
from worker.compiler.frontend.torchscript.module_state import inlined_graphs
from worker.compiler.frontend.torchscript.script_graph import parse_graph
from worker.compiler.source_locations import place_of
from worker.errors import JobError

MAX_LISTED = 3
STATE = "keep state in tensors of fixed shape, or take it as an input and return its new value"


@dataclass(frozen=True)
class Cause:
    """A reason why two runs differ, with its source location."""

    text: str
    place: SourcePlace


def runs_differ(model: object, program: ExportedProgram) -> JobError:
    """``model-stateful`` with every cause found in the model and its program.

    Args:
        model: the model that ran twice. A script module shows the attributes that it sets.
        program: the same model, exported.
    """
    state = tuple(dict.fromkeys((*_set_attributes(model), *_written_buffers(program))))
    why = "".join(_listed(state, STATE)) or (
        "it keeps state, or draws random numbers that torch.manual_seed does not determine"
    )
    detail = f"two runs of the model on the same inputs differ: {why}"
    return JobError(ErrorCode.MODEL_STATEFUL, detail, tuple(cause.place for cause in state))


def sets_attributes(model: object) -> bool:
    """Whether a script's ``forward`` assigns attributes, so that a run may depend on earlier ones."""
    return any(True for _ in _set_attributes(model))


def _listed(causes: tuple[Cause, ...], remedy: str) -> Iterator[str]:
    if causes:
        more = f", and {len(causes) - MAX_LISTED} more" if len(causes) > MAX_LISTED else ""
        yield f"{', '.join(cause.text for cause in causes[:MAX_LISTED])}{more}: {remedy}"


def _set_attributes(model: object) -> Iterator[Cause]:
    """The attributes that a script's ``forward`` assigns, including those of submodules."""
    if not isinstance(model, torch.jit.ScriptModule):
        return
    for graph in inlined_graphs(model):
        for path, value in parse_graph(graph).assignments():
            yield _state_cause(path, value.place())


def _written_buffers(program: ExportedProgram) -> Iterator[Cause]:
    """The buffers that the program writes, in place or as extra outputs."""
    signature = program.graph_signature
    for node in program.graph.nodes:
        target = _buffer_of(_written(node), signature.inputs_to_buffers)
        name = target or signature.buffers_to_mutate.get(node.name)
        if name is not None:
            yield _state_cause(name, place_of(node))


def _written(node: Node) -> object:
    """The argument that an operator writes in place, or None."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    arguments = zip(node.target._schema.arguments, node.args, strict=False)
    written = (value for argument, value in arguments if argument.alias_info and argument.alias_info.is_write)
    return next(written, None)


def _buffer_of(value: object, buffers: dict[str, str]) -> str | None:
    """The name of the buffer that a tensor is, or is a view of; None for other tensors."""
    while isinstance(value, Node):
        if value.op == "placeholder":
            return buffers.get(value.name)
        if not isinstance(value.target, torch._ops.OpOverload) or not _shares_memory(value.target):
            return None
        value = value.args[0]
    return None


def _shares_memory(operator: torch._ops.OpOverload) -> bool:
    return any(result.alias_info is not None for result in operator._schema.returns)


def _state_cause(name: str, place: SourcePlace) -> Cause:
    module_path = name.rpartition(".")[0] or None
    found = SourcePlace(module_path=module_path, file=place.file, line=place.line)
    source = f" ({place.file}:{place.line})" if place.file and place.line else ""
    return Cause(f"forward changes '{name}'{source}", found)


_BATCH_NORMS = frozenset(
    ["batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"]
)


def refuse_training(program: ExportedProgram, model: object = None) -> None:
    """Refuse a model whose batch norms use the batch's own statistics.

    Args:
        program: the exported model.
        model: the model itself. A script module names its submodules, which the program does not.

    Raises:
        JobError: ``model-stateful`` with all such operators and submodules.
    """
    trains = [node for node in program.graph.nodes if _uses_own_statistics(node)]
    if trains:
        places = tuple(map(place_of, trains))
        detail = f"the model is in training mode: {places[0]} uses the batch's own statistics"
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        modules = tuple(_modules_in_training(model))
        named = f"; submodules in training mode: {', '.join(modules)}" if modules else ""
        at_modules = tuple(SourcePlace(module_path=name) for name in modules)
        raise JobError(ErrorCode.MODEL_STATEFUL, f"{detail}{more}{named}", (*places, *at_modules))


def _modules_in_training(model: object) -> Iterator[str]:
    if isinstance(model, torch.jit.ScriptModule):
        for name, module in model.named_modules():
            if name and module.training and str(module.original_name).startswith("BatchNorm"):
                yield name


def _uses_own_statistics(node: Node) -> bool:
    """Whether a call is a batch norm with running statistics that uses the batch's own instead."""
    if getattr(node.target, "_opname", "") not in _BATCH_NORMS:
        return False
    given = arguments_of(node)
    return given.get("running_mean") is not None and given.get("training") is True
