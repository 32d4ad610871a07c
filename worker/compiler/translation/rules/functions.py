"""Functions of single elements in terms of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from worker.compiler.translation.rule import Decomposition, Rules


def _hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Without squares that overflow; infinite where one side is, whatever the other."""
    larger, smaller = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = torch.where(larger == smaller, 1.0, smaller / torch.where(larger == 0, 1.0, larger))
    return torch.where(x.isinf() | y.isinf(), torch.inf, larger * torch.sqrt(1 + ratio * ratio))


def _signbit(x: torch.Tensor) -> torch.Tensor:
    """A zero's sign shows in its reciprocal only."""
    return (x < 0) | ((x == 0) & (x.reciprocal() < 0)) if x.is_floating_point() else x < 0


def _copysign(x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    size = x.abs() if x.is_floating_point() else x.abs().to(torch.get_default_dtype())
    return torch.where(_signbit(sign), -size, size)


def _copysign_of_number(x: torch.Tensor, sign: float) -> torch.Tensor:
    return _copysign(x, torch.full((), sign, dtype=torch.float32))


def _angle(x: torch.Tensor) -> torch.Tensor:
    """Of real numbers: 0, or π for those below zero."""
    return torch.where(x.isnan(), x, torch.where(x < 0, math.pi, 0.0))


def _fmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.maximum(x, y)))


def _fmin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.minimum(x, y)))


def _log_of_sum(
    x: torch.Tensor,
    y: torch.Tensor,
    power: Callable[[torch.Tensor], torch.Tensor],
    log_of_more: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Of two powers by their exponents: the larger one, and how much the other adds to it.

    torch's decomposition asks each operand so often that simplifying it does not end.
    """
    gap = torch.where(x == y, 0.0, (x - y).abs())
    return torch.maximum(x, y) + log_of_more(power(-gap))


def _logaddexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _log_of_sum(x, y, torch.exp, torch.log1p)


def _logaddexp2(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _log_of_sum(x, y, torch.exp2, lambda share: torch.log1p(share) / math.log(2))


def _normal_quantile(share: torch.Tensor) -> torch.Tensor:
    """In float64, in which a small share is not lost beside 1."""
    return (torch.erfinv(share.double() * 2 - 1) * math.sqrt(2)).to(
        share.dtype if share.is_floating_point() else torch.get_default_dtype()
    )


def _ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    return x * torch.pow(2.0, exponent)


def _left_shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    return x * 2**bits


def _right_shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.div(x, 2**bits, rounding_mode="floor")


def _randomized_relu(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """Its slope is the middle one where nothing is trained."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "__lshift__.Scalar": _left_shift,
    "__rshift__.Scalar": _right_shift,
    "copysign.Tensor": _copysign,
    "angle.default": _angle,
    "copysign.Scalar": _copysign_of_number,
    "fmax.default": _fmax,
    "fmin.default": _fmin,
    "hypot.default": _hypot,
    "ldexp.Tensor": _ldexp,
    "logaddexp.default": _logaddexp,
    "logaddexp2.default": _logaddexp2,
    "rrelu_with_noise_functional.default": _randomized_relu,
    "signbit.default": _signbit,
    "special_ndtri.default": _normal_quantile,
}

RULES: Rules = tuple(Decomposition(f"aten.{name}", compute) for name, compute in _FUNCTIONS.items())
