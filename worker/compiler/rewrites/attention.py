"""Attention as one function; the layout package recognizes it, of any form."""

from __future__ import annotations

import tvm
from tvm import relax

from worker.compiler.layout.attention import fuse_attention
from worker.compiler.rewrites.rewrite import GraphRewrite


def _fuse(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[relax.Var, ...]]:
    fused = fuse_attention(module)
    known = {variable.name_hint for variable in module.get_global_vars()}
    fired = [
        variable
        for function in fused.functions.values()
        if isinstance(function, relax.Function)
        for variable, value in relax.analysis.get_var2val(function).items()
        if _called(value) not in {"", *known}
    ]
    return fused, tuple(fired)


def _called(value: relax.Expr) -> str:
    """The function of TensorIR that an expression calls."""
    if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
        return ""
    return str(value.args[0].name_hint)


REWRITES = (
    GraphRewrite(
        name="attention",
        summary="two products with a softmax between become one function without a matrix of all scores",
        apply=_fuse,
        is_default=True,
    ),
)
