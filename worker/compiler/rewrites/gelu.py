"""GELU (Hendrycks and Gimpel, 2016), written out with an error function or a hyperbolic tangent.

    0.5 * x * (1 + erf(x / sqrt(2)))                                →   nn.gelu(x)
    0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))       →   nn.gelu_tanh(x)

The factors may stand in any order, the cube may be a power or products, and ``x * (1 + 0.044715 * x^2)`` is
recognized too. Constants may differ by a thousandth, as float16 rounds them.
"""

from __future__ import annotations

import math

from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from worker.compiler.rewrites.rewrite import Match, Rewrite, commuted

_MULTIPLY = "relax.multiply"


def _product(one: DFPattern, two: DFPattern, three: DFPattern) -> DFPattern:
    """A product of three factors in any order."""
    return (
        commuted(_MULTIPLY, commuted(_MULTIPLY, one, two), three)
        | commuted(_MULTIPLY, one, commuted(_MULTIPLY, two, three))
        | commuted(_MULTIPLY, two, commuted(_MULTIPLY, one, three))
    )


_X = wildcard()
_HALF, _ONE = is_const(), is_const()

_SCALE, _DIVISOR = is_const(), is_const()
_SCALED = commuted(_MULTIPLY, _X, _SCALE) | is_op("relax.divide")(_X, _DIVISOR)
_WITH_ERF = _product(_X, _HALF, commuted("relax.add", is_op("relax.erf")(_SCALED), _ONE))


def _by_erf(match: Match) -> relax.Expr | None:
    is_scaled = (
        match.is_close(_SCALE, math.sqrt(0.5)) if _SCALE in match else match.is_close(_DIVISOR, math.sqrt(2))
    )
    is_gelu = is_scaled and match.is_close(_HALF, 0.5) and match.is_close(_ONE, 1)
    return relax.op.nn.gelu(match[_X]) if is_gelu and _keeps_rank(match) else None


_COEFFICIENT, _FACTOR, _EXPONENT, _INNER_ONE = is_const(), is_const(), is_const(), is_const()
_POWER = is_op("relax.power")(_X, _EXPONENT)
_SQUARE = is_op(_MULTIPLY)(_X, _X)
_CUBIC = commuted(_MULTIPLY, _COEFFICIENT, commuted(_MULTIPLY, _SQUARE, _X) | _POWER) | commuted(
    _MULTIPLY, commuted(_MULTIPLY, commuted(_MULTIPLY, _X, _COEFFICIENT), _X), _X
)
_GROWING = commuted(
    "relax.add",
    commuted(_MULTIPLY, commuted(_MULTIPLY, _COEFFICIENT, _X), _X)
    | commuted(_MULTIPLY, _COEFFICIENT, _SQUARE),
    _INNER_ONE,
)
_INNER = commuted(_MULTIPLY, _FACTOR, commuted("relax.add", _X, _CUBIC)) | _product(_X, _FACTOR, _GROWING)
_WITH_TANH = _product(_X, _HALF, commuted("relax.add", is_op("relax.tanh")(_INNER), _ONE))


def _by_tanh(match: Match) -> relax.Expr | None:
    wanted = {
        _HALF: 0.5,
        _ONE: 1.0,
        _COEFFICIENT: 0.044715,
        _FACTOR: math.sqrt(2 / math.pi),
        _EXPONENT: 3.0,
        _INNER_ONE: 1.0,
    }
    is_gelu = all(match.is_close(part, value) for part, value in wanted.items() if part in match)
    return relax.op.nn.gelu_tanh(match[_X]) if is_gelu and _keeps_rank(match) else None


def _keeps_rank(match: Match) -> bool:
    """Whether no constant adds dimensions to the result."""
    return bool(match[_X].ty.ndim == match.root.ty.ndim)


REWRITES = (
    Rewrite(
        name="gelu_erf",
        summary="a GELU written out with `erf` becomes `nn.gelu`",
        pattern=_WITH_ERF,
        rewriter=_by_erf,
        is_default=True,
    ),
    Rewrite(
        name="gelu_tanh",
        summary="a GELU written out with `tanh` becomes `nn.gelu_tanh`",
        pattern=_WITH_TANH,
        rewriter=_by_tanh,
        is_default=True,
    ),
)
