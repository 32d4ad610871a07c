"""A library survives indices beyond a tensor, which torch refuses."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from stage_samples import Function, capture_module, compile_to_library

from worker.compiler.values import StageContext

ROWS = 8
BEYOND = np.array([2**40, -(10**9), ROWS, 1])
"""Only the last is an index of a row."""

Operator = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def wide(index: torch.Tensor) -> torch.Tensor:
    return index[:, None].expand(-1, 16)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "operator",
    [
        lambda values, index: torch.gather(values, 0, wide(index)),
        lambda values, index: torch.gather(values.T, -1, wide(index).T).T,
        lambda values, index: values[index],
        lambda values, index: values.index_select(0, index),
    ],
    ids=["gather", "gather along the last axis", "index", "index_select"],
)
def test_a_read_beyond_a_tensor_gives_nan(operator: Operator, context: StageContext) -> None:
    read = run(operator, torch.ones(ROWS, 16), context)
    np.testing.assert_array_equal(np.isnan(read), np.array([True, True, True, False])[:, None].repeat(16, 1))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "operator",
    [
        lambda values, index: torch.zeros(ROWS, 16).index_copy(0, index, values),
        lambda values, index: torch.zeros(ROWS, 16).index_put((index,), values),
        lambda values, index: torch.zeros(ROWS, 16).index_add(0, index, values),
        lambda values, index: torch.zeros(ROWS, 16).scatter(0, wide(index), values),
        lambda values, index: torch.zeros(ROWS, 16).scatter_reduce(0, wide(index), values, "amax"),
    ],
    ids=["index_copy", "index_put", "index_add", "scatter", "scatter_reduce"],
)
def test_a_write_beyond_a_tensor_does_nothing(operator: Operator, context: StageContext) -> None:
    written = run(operator, torch.ones(len(BEYOND), 16), context)
    expected = np.zeros((ROWS, 16), np.float32)
    expected[1] = 1
    np.testing.assert_array_equal(written, expected)


def run(operator: Operator, values: torch.Tensor, context: StageContext) -> np.ndarray:
    """Compile for indices within the tensor, and run with others."""
    captured = capture_module(
        Function(lambda _, *inputs: operator(*inputs)), values, torch.arange(len(BEYOND))
    )
    built = compile_to_library(captured, context)
    with context.candidates.open_library(built.library, threads=2) as library:
        return library.run((values.numpy(), BEYOND))[0]
