"""Infinities are numbers: the largest is not finite, and a row that is masked whole stays defined."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from family_samples import run_compiled, scheduled, target_of
from stage_samples import Function, capture_module, make_workshop, optimized
from torch.nn import functional

from worker.candidates.client import CandidateClient

Run = Callable[..., Any]

BELOW_ALL = torch.full((3, 40), -torch.inf)
ABOVE_ALL = -BELOW_ALL


@pytest.fixture
def run(server: CandidateClient, tmp_path: Path) -> Run:
    """A function compiled as the pipeline compiles it, and called."""
    target = target_of("x86-64-v3")

    def called(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
        ready = optimized(capture_module(Function(function), *inputs), make_workshop(tmp_path))
        arrays = tuple(tensor.numpy() for tensor in inputs)
        return run_compiled(server, scheduled(ready.module, target), target, arrays, tmp_path)

    return called


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_query_that_sees_no_key_gets_zeros(run: Run, dtype: torch.dtype) -> None:
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
