"""Functions of single elements in terms of others."""

from __future__ import annotations

from collections.abc import Callable

import torch

from worker.translation.rule import Decomposition, Rules


def _erfc(x: torch.Tensor) -> torch.Tensor:
    return 1 - torch.erf(x)


def _hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Without squares that overflow."""
    larger, smaller = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = smaller / torch.where(larger == 0, 1.0, larger)
    return larger * torch.sqrt(1 + ratio * ratio)


def _signbit(x: torch.Tensor) -> torch.Tensor:
    """A zero's sign shows in its reciprocal only."""
    return (x < 0) | ((x == 0) & (x.reciprocal() < 0)) if x.is_floating_point() else x < 0


def _copysign(x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    return torch.where(_signbit(sign), -x.abs(), x.abs())


def _fmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.maximum(x, y)))


def _fmin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, torch.minimum(x, y)))


def _ldexp(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    return x * torch.pow(2.0, exponent)


def _left_shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    return x * 2**bits


def _right_shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.div(x, 2**bits, rounding_mode="floor")


_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "__lshift__.Scalar": _left_shift,
    "__rshift__.Scalar": _right_shift,
    "copysign.Tensor": _copysign,
    "erfc.default": _erfc,
    "fmax.default": _fmax,
    "fmin.default": _fmin,
    "hypot.default": _hypot,
    "ldexp.Tensor": _ldexp,
    "signbit.default": _signbit,
}

RULES: Rules = tuple(Decomposition(f"aten.{name}", compute) for name, compute in _FUNCTIONS.items())
