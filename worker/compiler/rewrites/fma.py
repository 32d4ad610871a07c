"""A product and a sum as one operator."""

from __future__ import annotations

from tvm import relax
from tvm.relax.dpl import is_op, wildcard

from worker.compiler.layout.views import static_shape
from worker.compiler.rewrites.rewrite import Match, Rewrite, commuted

_ONE, _OTHER, _ADDED = wildcard(), wildcard(), wildcard()


def _fuse(match: Match) -> relax.Expr | None:
    operands = [match[one] for one in (_ONE, _OTHER, _ADDED)]
    if not str(match.root.ty.dtype).startswith("float"):
        return None
    shapes = {static_shape(operand) for operand in operands}
    if shapes == {static_shape(match.root)} and None not in shapes:
        return relax.op.ewise_fma(*operands)
    return match.group("fused_multiply_add")


REWRITES = (
    Rewrite(
        name="ewise_fma",
        summary="a product and a sum become `ewise_fma`; where shapes differ, one primitive function",
        pattern=commuted("relax.add", is_op("relax.multiply")(_ONE, _OTHER), _ADDED),
        rewriter=_fuse,
    ),
)
