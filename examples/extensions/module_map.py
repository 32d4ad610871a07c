"""Translates modules by class, as the course's ``call_module_map`` does: an ``nn.Linear`` becomes a call."""

from __future__ import annotations

from torch import nn
from tvm import relax

from worker.compiler.translation.emitter import Emitter
from worker.compiler.translation.rule import ModuleRule


def linear(emit: Emitter, x: relax.Expr, *, weight: relax.Expr, bias: relax.Expr) -> relax.Expr:
    """Call ``env.linear`` with a tensor and the layer's own parameters."""
    columns = relax.TensorType((x.ty.shape[0], weight.ty.shape[0]), emit.dtype)
    return relax.call_dps_packed("env.linear", [x, weight, bias], out_ty=columns)


RULES = (ModuleRule(nn.Linear, linear),)
