"""A product and a sum as one function: linear layers, and elementwise multiply-adds.

    linear       relu(add(matmul(x, W), B))   →   fused_linear_add_relu(x), a primitive function
    ewise_fma    add(multiply(x, y), z)       →   ewise_fma(x, y, z) if the shapes are equal,
                                                  else fused_multiply_add(x, y, z)

``W`` and ``B`` are constants, which stay inside the function so that layout can pack them. The activation may
be missing. ``ewise_fma`` takes floats only.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard

from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.rewrites.rewrite import Match, Rewrite, commuted

_ACTIVATIONS = {
    "relax.nn.relu": "relu",
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.nn.silu": "silu",
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
}

_WEIGHTS, _BIAS = is_const(), is_const()
_BIASED = commuted("relax.add", is_op("relax.matmul")(wildcard(), _WEIGHTS), _BIAS)
_ACTIVATED = reduce(or_, (is_op(name)(_BIASED) for name in _ACTIVATIONS))


def _group_linear(match: Match) -> relax.Expr | None:
    if len(match[_WEIGHTS].ty.shape) != 2:
        return None
    activation = _ACTIVATIONS.get(match.bound[match.root].op.name)
    return match.group("fused_linear_add" + (f"_{activation}" if activation else ""))


_ONE, _OTHER, _ADDED = wildcard(), wildcard(), wildcard()


def _multiply_add(match: Match) -> relax.Expr | None:
    operands = [match[one] for one in (_ONE, _OTHER, _ADDED)]
    if not str(match.root.ty.dtype).startswith("float"):
        return None
    shapes = {static_shape(operand) for operand in operands}
    if shapes == {static_shape(match.root)} and None not in shapes:
        return relax.op.ewise_fma(*operands)
    return match.group("fused_multiply_add")


REWRITES = (
    Rewrite(
        name="linear",
        summary="a product with constant weights, its bias and its activation become one primitive function",
        pattern=_ACTIVATED | _BIASED,
        rewriter=_group_linear,
    ),
    Rewrite(
        name="ewise_fma",
        summary="a product and a sum become `ewise_fma`; where shapes differ, one primitive function",
        pattern=commuted("relax.add", is_op("relax.multiply")(_ONE, _OTHER), _ADDED),
        rewriter=_multiply_add,
    ),
)
