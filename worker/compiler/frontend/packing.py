"""Models that pack padded sequences. Their sizes follow from the lengths' values, so none can be exported."""

from __future__ import annotations

import torch

from bessemer.contract.model_advice import UNPACKED
from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.torchscript.graph import parse_graph
from worker.errors import JobError

PACKING = "aten::_pack_padded_sequence"


def packing_refusal(model: object) -> JobError | None:
    """``capture-failed`` with what to do in place of packing, where a script always packs; else None."""
    if not isinstance(model, torch.jit.ScriptModule):
        return None
    steps = parse_graph(model.inlined_graph).steps
    place = next((step.place() for step in steps if step.kind == PACKING), None)
    return None if place is None else JobError(ErrorCode.CAPTURE_FAILED, f"{UNPACKED}: {place}", (place,))
