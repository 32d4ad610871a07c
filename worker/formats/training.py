"""Programs that were exported in training mode."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from bessemer.contract.problem import ErrorCode
from worker.errors import JobError
from worker.places import describe_place, place_of

_RUNNING_MEAN, _TRAINING = 3, 5
# operators whose arguments include running statistics and whether to use the batch's own instead
_BATCH_NORMS = frozenset(
    {
        torch.ops.aten.batch_norm.default,
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten._native_batch_norm_legit.default,
        torch.ops.aten._native_batch_norm_legit_functional.default,
    }
)


def refuse_training(program: ExportedProgram) -> None:
    """Refuse batch norms that have running statistics and use the batch's own: those of training mode.

    Raises:
        JobError: ``model-stateful`` with all of them.
    """
    places = tuple(place_of(node) for node in program.graph.nodes if _trains(node))
    if places:
        detail = f"the model is in training mode: {describe_place(places[0])} uses the batch's own statistics"
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        raise JobError(ErrorCode.MODEL_STATEFUL, f"{detail}{more}", places)


def _trains(node: Node) -> bool:
    if node.target not in _BATCH_NORMS or len(node.args) <= _TRAINING:
        return False
    return node.args[_RUNNING_MEAN] is not None and node.args[_TRAINING] is True
