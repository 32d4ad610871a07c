"""Maxima of windows whose distances are drawn: the numbers that were drawn are an argument.

Source: torch's ``aten/src/ATen/native/FractionalMaxPooling.h``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor

from worker.compiler.translation.rule import Decomposition, Rules

Pool = Callable[[Tensor, list[int], list[int], Tensor], tuple[Tensor, Tensor]]


def _pool(drawn_for: tuple[int, ...]) -> Pool:
    """For the number that places the windows of each axis, which one of those drawn it is."""
    rank = len(drawn_for)

    def pool(data: Tensor, window: list[int], sizes: list[int], drawn: Tensor) -> tuple[Tensor, Tensor]:
        whole = data if data.dim() == rank + 2 else data.unsqueeze(0)
        batch, channels, given = whole.shape[0], whole.shape[1], whole.shape[2:]
        flat = torch.zeros((), dtype=torch.int64)
        for axis in range(rank):
            number = drawn.reshape(batch, channels, rank)[..., drawn_for[axis]]
            begin = _begin(number, given[axis], sizes[axis], window[axis])
            places = begin.unsqueeze(-1) + torch.arange(window[axis])
            shape = [batch, channels, *[1] * (2 * rank)]
            shape[2 + axis], shape[2 + rank + axis] = sizes[axis], window[axis]
            flat = flat * given[axis] + places.reshape(shape)
        flat = flat.reshape(batch, channels, -1)
        taps = [batch, channels, *sizes, prod(window)]
        values, taken = whole.flatten(2).gather(2, flat).reshape(taps).max(-1)
        places = flat.reshape(taps).gather(-1, taken.unsqueeze(-1)).squeeze(-1)
        return values.reshape(*data.shape[:-rank], *sizes), places.reshape(*data.shape[:-rank], *sizes)

    return pool


def _begin(drawn: Tensor, given: int, wanted: int, window: int) -> Tensor:
    """Where the windows of an axis begin; the last one ends at the edge."""
    last = torch.full((*drawn.shape, 1), given - window)
    if wanted == 1:
        return last
    step = (given - window) / (wanted - 1)
    start = drawn.unsqueeze(-1)
    near = ((torch.arange(wanted - 1) + start) * step).long() - (start * step).long()
    return torch.cat([near, last], -1)


RULES: Rules = (
    Decomposition("aten.fractional_max_pool2d.default", _pool((1, 0))),
    Decomposition("aten.fractional_max_pool3d.default", _pool((0, 1, 2))),
)
