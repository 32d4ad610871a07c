"""Infinities, NaN and rounding: compiled functions agree with torch on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_samples import Array, fuzz, outputs_compiled, scheduled, target_of
from hypothesis import given
from hypothesis import strategies as st
from stage_samples import Function, capture_module, make_context, optimized
from torch.nn import functional

from worker.candidates.client import CandidateClient

Run = Callable[..., Any]

BELOW_ALL = torch.full((3, 40), -torch.inf)
ABOVE_ALL = -BELOW_ALL


@pytest.fixture
def run(server: CandidateClient, tmp_path: Path) -> Run:
    """Compile a function as the pipeline does, call it, and return its first output."""
    return lambda function, *inputs: outputs_of(server, tmp_path, function, *inputs)[0]


@pytest.fixture
def run_all(server: CandidateClient, tmp_path: Path) -> Run:
    """Compile a function as the pipeline does, call it, and return all outputs."""
    return lambda function, *inputs: outputs_of(server, tmp_path, function, *inputs)


def outputs_of(
    server: CandidateClient, folder: Path, function: Callable[..., Any], *inputs: torch.Tensor
) -> tuple[Array, ...]:
    target = target_of("x86-64-v3")
    ready = optimized(capture_module(Function(function), *inputs), make_context(folder))
    arrays = tuple(tensor.numpy() for tensor in inputs)
    return outputs_compiled(server, scheduled(ready.module, target), target, arrays, folder)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda _, x: x.amax(1), BELOW_ALL),
        (lambda _, x: x.max(), BELOW_ALL),
        (lambda _, x: x.amin(0, keepdim=True), ABOVE_ALL),
    ],
    ids=["amax", "max", "amin"],
)
def test_an_extreme_of_infinities_is_infinite(
    run: Run, function: Callable[..., Any], x: torch.Tensor
) -> None:
    found = run(function, x)

    np.testing.assert_array_equal(found, function(None, x).numpy())


UNORDERED = torch.tensor([[2.0, torch.nan, -torch.inf, -0.0, 0.0, torch.inf, -1.0, torch.nan, 1.0]])


def ordered(_: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.argsort(dim=1, stable=True),
        x.argsort(dim=1, stable=True, descending=True),
        x.sort(1).values,
        x.topk(5, 1).values,
        x.topk(4, 1, largest=False).values,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_nan_is_sorted_above_all_numbers(run_all: Run, dtype: torch.dtype) -> None:
    x = UNORDERED.to(dtype)

    for found, expected in zip(run_all(ordered, x), ordered(None, x), strict=True):
        np.testing.assert_array_equal(found, expected.numpy())


HOLED = torch.randn(1, 16, 6, 6)
HOLED[0, 1] = -torch.inf


def pooled(_: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        functional.max_pool2d(x, 3, 2, 1),
        functional.adaptive_max_pool2d(x, 2),
        functional.adaptive_max_pool2d(x, (4, 5)),
    )


def pooled_in_blocks(_: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (functional.max_pool2d(functional.conv2d(x, torch.ones(16, 1, 1, 1), groups=16), 2),)


@pytest.mark.parametrize("pool", [pooled, pooled_in_blocks])
def test_a_pool_of_infinities_is_infinite(run_all: Run, pool: Callable[..., Any]) -> None:
    for found, expected in zip(run_all(pool, HOLED), pool(None, HOLED), strict=True):
        np.testing.assert_array_equal(found, expected.numpy())


HOLES = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, 1.0, -1.0, 7.5, -7.5] * 8)


def test_nan_passes_bounds_and_activations(run: Run) -> None:
    def bounded(_: Any, x: torch.Tensor) -> torch.Tensor:
        other = x.roll(1)
        return torch.stack(
            [
                x.relu(), functional.relu6(x), functional.hardtanh(x), x.clamp(-2, 3), x.clamp(min=1),
                x.clamp(max=1), functional.leaky_relu(x), torch.maximum(x, other), torch.minimum(x, other),
            ]
        )  # fmt: skip

    np.testing.assert_array_equal(run(bounded, HOLES), bounded(None, HOLES).numpy())


def test_a_median_with_nan_is_the_first_nan(run_all: Run) -> None:
    def medians(_: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*x.reshape(16, 4).median(1), x.median(), x[3:7].median())

    for found, expected in zip(run_all(medians, HOLES), medians(None, HOLES), strict=True):
        np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("reduction", ["amax", "amin"])
def test_nan_passes_scattered_extremes(run: Run, reduction: str) -> None:
    def scattered(_: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4).scatter_reduce(0, torch.arange(64) % 4, x, reduction)

    np.testing.assert_array_equal(run(scattered, HOLES), scattered(None, HOLES).numpy())


def test_division_by_and_multiplication_with_zero_agree_with_torch(run: Run) -> None:
    def by_zero(_: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([1.0 / (x - x), x / 0.0, x * 0.0, 1.0 / (x * 0.0), 0.0 * x, (x - x) * x])

    np.testing.assert_array_equal(run(by_zero, HOLES), by_zero(None, HOLES).numpy())


ROUNDED = 12582912.0
"""Adding and subtracting it rounds a float32 to a whole number."""


def test_float_differences_and_comparisons_are_not_simplified_like_real_numbers(run: Run) -> None:
    def compared(_: Any, x: torch.Tensor) -> torch.Tensor:
        other, fraction = x.roll(1), x.nan_to_num(0.3, 1.7, -1.7) / 3
        truths = (
            x != other, x != x, (x + 1) == (x + 1), ~(x < other), ~(x <= other), ~(x == other),
            torch.logical_xor(x, other), x.bool(),
        )  # fmt: skip
        numbers = (
            (fraction + ROUNDED) - ROUNDED, (x + other) - other, x - (x + other), x * 2 - x * 2,
            x / ((x + 1) - (x + 1)), torch.logaddexp(x, other), torch.dot(fraction, fraction).expand(64),
        )  # fmt: skip
        return torch.stack([*(torch.where(one, x, 2.0) for one in truths), *numbers])

    np.testing.assert_allclose(run(compared, HOLES), compared(None, HOLES).numpy(), rtol=2e-6)


def test_differences_near_zero_keep_their_digits(run: Run) -> None:
    tiny = torch.logspace(-12, 0, 32) * torch.tensor([1.0, -0.5] * 16)

    def near_zero(_: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x.expm1(), x.log1p(), x.sinh(), x.asinh(), x.atanh() * 0.5, x.erfinv() + x])

    np.testing.assert_allclose(run(near_zero, tiny), near_zero(None, tiny).numpy(), rtol=1e-5)


def test_nan_passes_activations_in_blocks(run: Run) -> None:
    x, weight = torch.randn(1, 16, 4, 4), torch.randn(16, 16, 1, 1)
    x[0, 3, 2, 2] = torch.nan

    def activated(_: Any, x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(functional.conv2d(x, weight).relu(), weight).clamp(-1, 1)

    assert np.isnan(run(activated, x)[0, :, 2, 2]).all()


def test_nan_passes_an_activated_join_into_a_pool(run: Run) -> None:
    x, weight = torch.randn(1, 16, 4, 4), torch.randn(16, 16, 1, 1)
    x[0, 3, 2, 2] = torch.nan

    def pooled(_: Any, x: torch.Tensor) -> torch.Tensor:
        join = torch.cat([functional.conv2d(x, weight), functional.conv2d(x + 1, weight)], 1)
        scale, shift = torch.linspace(0.5, 2, 64).reshape(2, 32, 1, 1)
        return functional.avg_pool2d((join * scale + shift).relu(), 2)

    found = run(pooled, x)

    np.testing.assert_allclose(found, pooled(None, x).numpy(), rtol=1e-4, atol=1e-5)


@fuzz(4)
@given(
    seed=st.integers(0, 1000),
    exponent=st.integers(0, 30),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_remainders_and_floored_quotients_are_exact(
    run: Run, seed: int, exponent: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, 100, generator=generator, dtype=dtype) * torch.tensor([[10.0**exponent], [1]])
    x, y = x.to(dtype), y.to(dtype)

    def divided(_: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.fmod(x, y), torch.remainder(x, y), x // y])

    np.testing.assert_array_equal(run(divided, x, y), divided(None, x, y).numpy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_query_without_visible_keys_gets_zeros(run: Run, dtype: torch.dtype) -> None:
    query, key = torch.randn(1, 2, 5, 8).to(dtype), torch.randn(1, 2, 7, 8).to(dtype)
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[3] = False

    def attend(_: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    found = run(attend, query, key)

    np.testing.assert_allclose(found, attend(None, query, key).numpy(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("x", [torch.tensor(2.0), torch.randn(9)], ids=["number", "vector"])
def test_a_division_outside_images_is_left_alone(run: Run, x: torch.Tensor) -> None:
    found = run(lambda _, x: x / 3.0, x)

    np.testing.assert_allclose(found, x.numpy() / 3, rtol=1e-6)
