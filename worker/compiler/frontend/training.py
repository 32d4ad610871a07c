"""Programs that were exported in training mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from bessemer.contract.problem import ErrorCode, SourcePlace
from worker.compiler.source_locations import place_of
from worker.errors import JobError

_BATCH_NORMS = frozenset(
    {
        "batch_norm",
        "native_batch_norm",
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional",
    }
)
# the names of their arguments that say how much they drop, and of those that say whether they do
_PROBABILITIES, _SWITCHES = ("p", "dropout", "dropout_p"), ("train", "training")
_DROPOUTS = frozenset(
    {
        "dropout",
        "dropout_",
        "native_dropout",
        "feature_dropout",
        "feature_dropout_",
        "alpha_dropout",
        "alpha_dropout_",
        "feature_alpha_dropout",
        "feature_alpha_dropout_",
        "scaled_dot_product_attention",
        "gru",
        "lstm",
        "rnn_relu",
        "rnn_tanh",
    }
)


# the classes of the submodules that contain them
_MODULES = ("Dropout", "AlphaDropout", "FeatureAlphaDropout", "BatchNorm", "GRU", "LSTM", "RNN")


def refuse_training(program: ExportedProgram, model: object = None) -> None:
    """Refuse what only training does: batch norms by the batch's own statistics, dropouts that drop.

    Two runs show a dropout only most of the time: of few elements both may drop the same.

    Args:
        program: the model, exported.
        model: the model itself. A script module names its submodules; its program does not.

    Raises:
        JobError: ``model-stateful`` with all of them.
    """
    trains = {node: what for node in program.graph.nodes if (what := _training(node))}
    if trains:
        places = tuple(map(place_of, trains))
        detail = f"the model is in training mode: {places[0]} {next(iter(trains.values()))}"
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        modules = tuple(_modules_in_training(model))
        named = f"; submodules in training mode: {', '.join(modules)}" if modules else ""
        at_modules = tuple(SourcePlace(module_path=name) for name in modules)
        raise JobError(ErrorCode.MODEL_STATEFUL, f"{detail}{more}{named}", (*places, *at_modules))


def _modules_in_training(model: object) -> Iterator[str]:
    if isinstance(model, torch.jit.ScriptModule):
        for name, module in model.named_modules():
            if name and module.training and str(module.original_name).startswith(_MODULES):
                yield name


def _training(node: Node) -> str:
    """What a node does that only training does; empty where there is nothing."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return ""
    if node.target._opname in _BATCH_NORMS and _uses_own_statistics(_arguments(node)):
        return "uses the batch's own statistics"
    return "draws random numbers" if node.target._opname in _DROPOUTS and _drops(_arguments(node)) else ""


def _arguments(node: Node) -> dict[str, Any]:
    """Those that are given, by their names in the operator's schema."""
    names = (argument.name for argument in node.target._schema.arguments)
    return dict(zip(names, node.args, strict=False)) | node.kwargs


def _uses_own_statistics(given: dict[str, Any]) -> bool:
    """Although it has running ones."""
    return given.get("running_mean") is not None and given.get("training") is True


def _drops(given: dict[str, Any]) -> bool:
    probability = next((given[name] for name in _PROBABILITIES if name in given), 0)
    if given.get("num_layers") == 1:  # it drops between layers
        return False
    return probability != 0 and not any(given.get(name) is False for name in _SWITCHES)
