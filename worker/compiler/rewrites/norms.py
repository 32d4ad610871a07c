"""Layer norm (Ba et al., 2016) and RMS norm (Zhang and Sennrich, 2019), written out.

    (x - mean(x)) / sqrt(variance(x) + epsilon) * gamma + beta   →   nn.layer_norm(x, gamma, beta)
    x / sqrt(mean(x * x) + epsilon) * gamma                      →   nn.rms_norm(x, gamma)

Means run along the last axis and keep it. ``gamma`` and ``beta`` are constants with one number per column, or
missing: then they become ones and zeros. The root may be ``sqrt``, ``rsqrt`` or a power, and ``gamma`` may
multiply any factor. Sizes must be known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.dpl import DFPattern, is_const, is_op, wildcard

from worker.compiler.layout.constants import constant_of
from worker.compiler.layout.relax_graph import static_shape
from worker.compiler.rewrites.rewrite import Match, Rewrite, commuted

_X = wildcard()
_GAMMA, _BETA, _EPSILON = is_const(), is_const(), is_const()
_TWO, _EXPONENT = is_const(), is_const()
_MULTIPLY = "relax.multiply"
_DTYPES = ("float32", "float16")
"""The dtypes that TVM's norm operators accept."""


def _squared(value: DFPattern) -> DFPattern:
    return is_op(_MULTIPLY)(value, value) | is_op("relax.power")(value, _TWO)


class _Normal(NamedTuple):
    """Patterns of a value divided by the root of its variance, and of that times ``gamma``."""

    plain: DFPattern
    scaled: DFPattern


def _normalized(value: DFPattern, variance: DFPattern) -> _Normal:
    shifted = commuted("relax.add", variance, _EPSILON)
    inverse = is_op("relax.rsqrt")(shifted) | is_op("relax.power")(shifted, _EXPONENT)
    root = is_op("relax.sqrt")(shifted)
    plain = commuted(_MULTIPLY, value, inverse) | is_op("relax.divide")(value, root)
    factored = commuted(_MULTIPLY, value, _GAMMA)
    return _Normal(
        plain=plain,
        scaled=commuted(_MULTIPLY, plain, _GAMMA)
        | commuted(_MULTIPLY, factored, inverse)
        | commuted(_MULTIPLY, value, commuted(_MULTIPLY, inverse, _GAMMA))
        | is_op("relax.divide")(factored, root),
    )


_MEAN = is_op("relax.mean")(_X)
_CENTERED = is_op("relax.subtract")(_X, _MEAN)
_MEAN_OF_SQUARES = is_op("relax.mean")(_squared(_CENTERED))
_VARIANCE = is_op("relax.variance")(_X)
_LAYER = _normalized(_CENTERED, _MEAN_OF_SQUARES | _VARIANCE)
_LAYER_NORM = commuted("relax.add", _LAYER.scaled, _BETA) | _LAYER.scaled | _LAYER.plain

_PLAIN_MEAN = is_op("relax.mean")(_squared(_X))
_RMS = _normalized(_X, _PLAIN_MEAN)
_RMS_NORM = _RMS.scaled | _RMS.plain


def _layer_norm(match: Match) -> relax.Expr | None:
    gamma, beta = _row(match, _GAMMA, 1), _row(match, _BETA, 0)
    reductions = [part for part in (_MEAN, _MEAN_OF_SQUARES, _VARIANCE) if part in match]
    if gamma is None or beta is None or not _is_along_rows(match, reductions):
        return None
    return relax.op.nn.layer_norm(
        match[_X], constant_of(gamma), constant_of(beta), axes=[-1], epsilon=match.scalar(_EPSILON)
    )


def _rms_norm(match: Match) -> relax.Expr | None:
    gamma = _row(match, _GAMMA, 1)
    if gamma is None or not _is_along_rows(match, [_PLAIN_MEAN]):
        return None
    return relax.op.nn.rms_norm(match[_X], constant_of(gamma), axes=[-1], epsilon=match.scalar(_EPSILON))


def _is_along_rows(match: Match, reductions: list[DFPattern]) -> bool:
    """Whether reductions run along the last axis and keep it, and exponents are those of a norm.

    Constants must not broadcast the result to another shape.
    """
    shape = static_shape(match.root)
    if shape is None or shape != static_shape(match[_X]) or match.scalar(_EPSILON) is None:
        return False
    if str(match.root.ty.dtype) not in _DTYPES:
        return False
    exponents = {_TWO: 2.0, _EXPONENT: -0.5}
    if not all(match.is_close(part, value) for part, value in exponents.items() if part in match):
        return False
    return all(_keeps_rows(match.call(part)) for part in reductions)


def _keeps_rows(call: relax.Call) -> bool:
    rank = int(call.args[0].ty.ndim)
    axes = call.attrs.axis
    return (
        bool(call.attrs.keepdims) and axes is not None and [int(axis) % rank for axis in axes] == [rank - 1]
    )


def _row(match: Match, part: DFPattern, default: int) -> NDArray[np.float32] | None:
    """One number per column: ``default`` if the part did not match, None if its shape is not a row's."""
    columns = (static_shape(match.root) or (0,))[-1]
    if part not in match:
        return np.full(columns, default, str(match.root.ty.dtype))
    values = match.array(part)
    return (
        values.reshape(-1)
        if values is not None and values.shape[-1:] == (columns,) == (values.size,)
        else None
    )


REWRITES = (
    Rewrite(
        name="layer_norm",
        summary="a layer norm written out becomes `nn.layer_norm`",
        pattern=_LAYER_NORM,
        rewriter=_layer_norm,
        is_default=True,
    ),
    Rewrite(
        name="rms_norm",
        summary="an RMS norm written out becomes `nn.rms_norm`",
        pattern=_RMS_NORM,
        rewriter=_rms_norm,
        is_default=True,
    ),
)
