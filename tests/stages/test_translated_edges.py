"""Operators on inputs at the edges of their domain, unlike the ones that a library is verified with."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from stage_samples import Function, capture_module, compile_to_library

from worker.compiler.values import StageContext
from worker.tensors import as_array


class Edge(NamedTuple):
    """An operator, and the inputs that it runs on after it was captured with zeros of their kind."""

    name: str
    operator: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]


FEW = torch.arange(12.0).reshape(1, 1, 3, 4)
BYTES = torch.arange(0, 250, 10, dtype=torch.uint8).reshape(1, 1, 5, 5)
POWERS = torch.tensor([inf, -inf, nan, 0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 2.5, -1.5])
HALVES = torch.ones(3000).half()
NUMBERS = torch.tensor([nan, inf, -inf, -0.0, 2.0, -3.0])
QUERIES = torch.randn(2, 1, 6, 16, generator=torch.Generator().manual_seed(0))
LEAST = torch.finfo(torch.float32).min
CAUSAL = torch.full((6, 6), LEAST).triu(1)
PADDING = torch.where(torch.arange(6) < torch.tensor([0, 3])[:, None], -inf, 0.0).reshape(2, 1, 1, 6)


def attended(scores: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return scores.softmax(-1) @ x


EDGES = (
    Edge("a shift that extends a sign", lambda x: (x << 28) >> 28, (torch.arange(16, dtype=torch.int32),)),
    Edge("a shift by a number", lambda x: torch.bitwise_left_shift(x, 3) >> 1, (torch.arange(-8, 8),)),
    Edge("a running sum of halves", lambda x: x.cumsum(0), (HALVES,)),
    Edge(
        "a running product of halves",
        lambda x: x.cumprod(0),
        (torch.tensor([300.0, 300.0, 1e-3, 1e-2]).half(),),
    ),
    Edge(
        "a scattered sum of bfloat16",
        lambda x: torch.zeros(2, dtype=x.dtype).scatter_add(0, torch.zeros(600, dtype=torch.int64), x),
        (torch.ones(600).bfloat16(),),
    ),
    Edge(
        "a bias in reverse",
        lambda x: (x + torch.arange(5.0)).flatten(1).flip(1),
        (torch.arange(30.0).reshape(3, 2, 5),),
    ),
    Edge("a tile in reverse", lambda x: x.repeat(1, 2).flip(1), (torch.arange(15.0).reshape(3, 5),)),
    Edge(
        "two axes in reverse",
        lambda x: (x + torch.arange(5.0)).reshape(15, 2).flip(0, 1),
        (torch.arange(30.0).reshape(3, 2, 5),),
    ),
    Edge("a mean of large halves", lambda x: F.avg_pool2d(x, 3), (torch.full((1, 1, 6, 6), 3e4).half(),)),
    Edge(
        "a mean of large halves with a divisor",
        lambda x: F.avg_pool2d(x, 2, divisor_override=5),
        (torch.full((1, 1, 6, 6), 3e4).half(),),
    ),
    Edge("log2 of powers of two", lambda x: torch.log2(x).floor(), (2.0 ** torch.arange(-120, 120),)),
    Edge(
        "log2 beside 1 and beyond numbers",
        torch.log2,
        (torch.tensor([1 - 1e-7, 1 + 2e-7, 0.7, 0.71, 0, inf, 1e-40]),),
    ),
    Edge("log2 of integers", torch.log2, (torch.tensor([1, 2, 1000, 2**40]),)),
    Edge("log2 of halves", torch.log2, (torch.tensor([0.5, 8.0, 1024.0]).half(),)),
    Edge(
        "an insertion of NaN",
        lambda x: torch.searchsorted(torch.arange(5.0), x),
        (torch.tensor([nan, -inf, inf, 2.0, -0.0]),),
    ),
    Edge(
        "a bucket of NaN",
        lambda x: torch.bucketize(x, torch.arange(5.0), right=True),
        (torch.tensor([nan, -inf, inf, 2.0, -0.0]),),
    ),
    Edge("a resized image of bytes", lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (BYTES,)),
    Edge("a doubled image of bytes", lambda x: F.interpolate(x, size=(10, 10), mode="bilinear"), (BYTES,)),
    Edge(
        "a doubled image of float64",
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        (FEW.double(),),
    ),
    Edge(
        "nearest pixels by a factor", lambda x: F.interpolate(x, scale_factor=3.2), (FEW.reshape(1, 1, 3, 4),)
    ),
    Edge(
        "nearest pixels by about 2", lambda x: F.interpolate(x, scale_factor=2.1), (FEW.reshape(1, 1, 3, 4),)
    ),
    Edge(
        "a scatter into a part",
        lambda x: x.scatter(0, torch.zeros(1, 2, 2, dtype=torch.int64), torch.ones(1, 2, 2)),
        (torch.arange(24.0).reshape(2, 3, 4),),
    ),
    Edge(
        "a scattered sum in a part",
        lambda x: x.scatter_add(-1, torch.ones(2, 2, 1, dtype=torch.int64), torch.ones(2, 2, 1)),
        (torch.arange(24.0).reshape(2, 3, 4),),
    ),
    Edge(
        "a wide mean of halves",
        lambda x: F.adaptive_avg_pool2d(x, 2),
        (torch.full((1, 1, 64, 64), 70.0).half(),),
    ),
    Edge("an integer power", lambda x: x**40, (torch.tensor([3, -7, 0, 2**33, -1]),)),
    Edge("an integer power of bytes", lambda x: x**7, (torch.arange(256).to(torch.uint8),)),
    Edge("powers of an integer", lambda x: 3**x, (torch.tensor([0, 40, 41, 64, 101, -1]),)),
    Edge(
        "integer powers of integers",
        lambda x, y: x.unsqueeze(1) ** y,
        (torch.tensor([0, 1, -1, 2, -3], dtype=torch.int32), torch.tensor([-3, -2, 0, 1, 5, 63])),
    ),
    Edge("a truth less one", lambda x: (x > 1).long() - 1 < 0, (NUMBERS,)),
    Edge("a truth times a negative number", lambda x: (x > 1).int() * -3 + 1, (NUMBERS,)),
    Edge("bytes less a number", lambda x: (x.long() - 30).clamp(min=-20), (BYTES,)),
    Edge(
        "sums that wrap", lambda x: (x + 1 > x) ^ (x - 5 < x), (torch.tensor([2**31 - 1, 3, -(2**31)]).int(),)
    ),
    Edge(
        "a product that wraps", lambda x: (x * 4) // 4 + (x * 4) % 12, (torch.tensor([2**62, 3, -(2**61)]),)
    ),
    Edge(
        "negative floats as bytes", lambda x: x.to(torch.uint8) + x.int(), (torch.tensor([-2.5, 1.5, 200.0]),)
    ),
    Edge("a power in place", lambda x: x.clone().pow_(3), (FEW,)),
    Edge(
        "powers with signs",
        lambda x, y: torch.pow(x.unsqueeze(1), y).reciprocal(),
        (POWERS, POWERS),
    ),
    Edge("bytes beside larger numbers", lambda x: (300 - x) * -1 + 300, (BYTES,)),
    Edge("bytes compared with other numbers", lambda x: (x > -1) ^ (x == 256 + 30), (BYTES,)),
    Edge("bytes filled with a negative number", lambda x: x.masked_fill(x > 100, -1).clamp(max=-2), (BYTES,)),
    Edge("negative bytes", lambda x: -x, (BYTES,)),
    Edge("signs of bytes", torch.sign, (BYTES,)),
    Edge("signs of booleans", torch.sign, (torch.tensor([True, False]),)),
    Edge("a remainder of halves", lambda x: x.remainder(0.7), (POWERS.half(),)),
    Edge("a number's remainder", lambda x: torch.remainder(5, x), (torch.tensor([2, -3, 7]),)),
    Edge("a shifted number", lambda x: (1 << x) | (64 >> x), (torch.arange(5),)),
    Edge("a variance of one", lambda x: x.var(0), (torch.tensor([[1.0, 2.0]]),)),
    Edge(
        "a variance of fewer than its correction",
        lambda x: x.var(1, correction=5),
        (torch.tensor([[1.0, 2.0], [3.0, 3.0]]),),
    ),
    Edge(
        "running statistics of an instance",
        lambda x: F.instance_norm(x, torch.tensor([1.0]), torch.tensor([4.0]), use_input_stats=False),
        (FEW,),
    ),
    Edge("an infinity norm of NaN", lambda x: x.norm(p=inf), (torch.tensor([nan, 1.0, 2.0]),)),
    Edge("a hash of int64", lambda x: x * 1000003 % 1000, (torch.tensor([123456789012345, -(2**62)]),)),
    Edge("a hash of int32", lambda x: x * 1000003 % 1000, (torch.tensor([1234567, -9], dtype=torch.int32),)),
    Edge("a remainder of a difference", lambda x: (x - 5) % 3, (torch.tensor([0, 1, 2, 7]),)),
    Edge("a quotient of a sum", lambda x: (x + 1) // 2, (torch.tensor([-4, -3, 5], dtype=torch.int32),)),
    Edge("a quotient of a product", lambda x: x * 4 // 4, (torch.tensor([2**62 + 1, 2**63 - 1, 5]),)),
    Edge(
        "equal elements, one of them NaN",
        lambda x: (x[:, None] == x).float(),
        (torch.tensor([nan]),),
    ),
    Edge("a median of int8", lambda x: x.median(), (torch.tensor([5, -9, 3, 8], dtype=torch.int8),)),
    Edge(
        "medians of int16",
        lambda x: x.median(1).values,
        (torch.tensor([[3, -5, 7], [2, 2, -1]], dtype=torch.int16),),
    ),
    Edge("a remainder of float64", lambda x: torch.fmod(x, 2.5), (torch.tensor([7.3, -7.3, 5.0]).double(),)),
    Edge("any of bfloat16", lambda x: x.any(0), (NUMBERS.bfloat16(),)),
    Edge("numbers of bfloat16 that are not 0", torch.count_nonzero, (NUMBERS.bfloat16(),)),
    Edge(
        "places of the largest of bfloat16",
        lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
        (torch.arange(16.0).reshape(1, 1, 4, 4).bfloat16(),),
    ),
    Edge("extremes of bfloat16", lambda x: torch.stack([x.amax(), x.amin()]), (NUMBERS.bfloat16(),)),
    Edge(
        "comparisons of bfloat16",
        lambda x: torch.stack([x.maximum(x.flip(0)), x.minimum(x.roll(1)), (x != x.roll(1)).bfloat16()]),
        (NUMBERS.bfloat16(),),
    ),
    Edge(
        "bounded scores of attention",
        lambda x, keys: attended((x @ keys.mT).clamp(-1, 2), keys),
        (torch.where(QUERIES > 2, nan, QUERIES), QUERIES),
    ),
    Edge(
        "the larger of scores and a bias",
        lambda x, keys: attended(torch.maximum(x @ keys.mT, x[..., :6]), keys),
        (torch.where(QUERIES > 2, nan, QUERIES), QUERIES),
    ),
    Edge(
        "a finite causal mask and padding",
        lambda x, padding: attended(x @ x.mT + CAUSAL + padding, x),
        (QUERIES, PADDING),
    ),
    Edge(
        "padding and a finite causal choice",
        lambda x, padding: attended(torch.where(CAUSAL == 0, x @ x.mT + padding, LEAST), x),
        (QUERIES, PADDING),
    ),
    Edge(
        "a number, or not",
        lambda x: torch.where((x >= 1) | (x < 1), x, 0),
        (torch.tensor([nan, 0.0, 2.0]),),
    ),
)


@pytest.mark.filterwarnings("ignore:var")  # of no degrees of freedom
@pytest.mark.parametrize("edge", EDGES, ids=[edge.name for edge in EDGES])
def test_an_operator_agrees_with_torch_at_the_edges(edge: Edge, context: StageContext) -> None:
    model = Function(lambda _, *inputs: edge.operator(*inputs))
    captured = capture_module(model, *(torch.ones_like(each) for each in edge.inputs))
    built = compile_to_library(captured, context)
    with context.candidates.open_library(built.library, 1) as library:
        (found,) = library.run(tuple(map(as_array, edge.inputs)))

    expected = edge.operator(*edge.inputs)
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.astype(np.float64), expected.double().numpy(), rtol=2e-3, atol=1e-9)
