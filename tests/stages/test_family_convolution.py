"""Blocked convolutions and pools of all shapes agree with torch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from family_samples import TARGETS, Array, fuzz, main_of, run_compiled, scheduled, target_of
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from worker.candidates.client import CandidateClient

TOLERANCES = {"float32": 1e-5, "float64": 1e-12}
op = relax.op


@dataclass(frozen=True)
class Convolution:
    """A convolution, its shapes and its epilogue."""

    batch: int
    groups: int
    inputs: int
    outputs: int
    image: tuple[int, int]
    kernel: tuple[int, int]
    stride: int
    padding: tuple[int, int]
    dilation: int
    dtype: str
    activation: str
    residual: bool

    @property
    def reach(self) -> tuple[int, int]:
        """Pixels under the window."""
        rows, columns = ((size - 1) * self.dilation + 1 for size in self.kernel)
        return rows, columns

    @property
    def has_output(self) -> bool:
        """Whether the window fits the image."""
        sizes = zip(self.image, self.padding, self.reach, strict=True)
        return all(size + 2 * pad >= reach for size, pad, reach in sizes)


small = st.integers(1, 20)
pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
convolutions = st.builds(
    Convolution,
    batch=st.integers(1, 3),
    groups=st.sampled_from([1, 1, 1, 2, 3, 6]),
    inputs=small,
    outputs=small,
    image=st.tuples(st.integers(1, 17), st.integers(1, 17)),
    kernel=pairs,
    stride=st.integers(1, 3),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.integers(1, 2),
    dtype=st.sampled_from(["float32", "float32", "float64"]),
    activation=st.sampled_from(["none", "relu", "clip"]),
    residual=st.booleans(),
)


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(
    server: CandidateClient, module: tvm.IRModule, mcpu: str, inputs: Array, expected: Array, folder: Path
) -> None:
    target = target_of(mcpu)
    actual = run_compiled(server, scheduled(module, target), target, (inputs,), folder)
    tolerance = TOLERANCES[str(inputs.dtype)]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def check_convolution(server: CandidateClient, case: Convolution, mcpu: str, folder: Path) -> None:
    data = numbers((case.batch, case.groups * case.inputs, *case.image), case.dtype, 0)
    weights = numbers((case.groups * case.outputs, case.inputs, *case.kernel), case.dtype, 1)
    bias = numbers((1, weights.shape[0], 1, 1), case.dtype, 2)
    with torch.inference_mode():
        plain = functional.conv2d(
            *(torch.from_numpy(values) for values in (data, weights, bias.reshape(-1))),
            case.stride, case.padding, case.dilation, case.groups,
        )  # fmt: skip
        expected = _followed(plain, case).numpy()

    def build(x: relax.Expr) -> relax.Expr:
        padding = (*case.padding, *case.padding)
        result = op.nn.conv2d(
            x, relax.const(weights, case.dtype), strides=case.stride, padding=padding,
            dilation=case.dilation, groups=case.groups,
        )  # fmt: skip
        result = op.add(result, relax.const(bias, case.dtype))
        if case.residual:
            result = op.add(result, op.sigmoid(result))
        if case.activation == "relu":
            return op.nn.relu(result)
        return op.clip(result, 0, 6) if case.activation == "clip" else result

    check(server, main_of(build, data), mcpu, data, expected, folder)


def _followed(plain: torch.Tensor, case: Convolution) -> torch.Tensor:
    result = plain + torch.sigmoid(plain) if case.residual else plain
    if case.activation == "relu":
        return torch.relu(result)
    return torch.clamp(result, 0, 6) if case.activation == "clip" else result


@fuzz(9)
@given(case=convolutions, mcpu=st.sampled_from(TARGETS))
def test_a_convolution_of_any_shape_is_right(
    server: CandidateClient, tmp_path: Path, case: Convolution, mcpu: str
) -> None:
    assume(case.has_output)
    check_convolution(server, case, mcpu, tmp_path)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_with_weights_larger_than_the_cache_is_right(
    server: CandidateClient, tmp_path: Path, stride: int
) -> None:
    case = Convolution(1, 1, 512, 24, (5, 7), (3, 3), stride, (1, 1), 1, "float32", "relu", True)
    check_convolution(server, case, "x86-64-v3", tmp_path)


@fuzz(9)
@given(case=convolutions, mcpu=st.sampled_from(TARGETS), channels=st.integers(2, 20))
def test_a_depthwise_convolution_of_any_shape_is_right(
    server: CandidateClient, tmp_path: Path, case: Convolution, mcpu: str, channels: int
) -> None:
    depthwise = Convolution(**{**vars(case), "groups": channels, "inputs": 1, "outputs": 1})
    assume(depthwise.has_output)
    check_convolution(server, depthwise, mcpu, tmp_path)


@dataclass(frozen=True)
class Pool:
    """A pool of a 1x1 convolution's output, so that it is blocked."""

    kind: str
    channels: int
    image: tuple[int, int]
    kernel: tuple[int, int]
    stride: int
    padding: int
    ceil: bool
    counts_border: bool


pools = st.builds(
    Pool,
    kind=st.sampled_from(["max", "average", "global"]),
    channels=small,
    image=st.tuples(st.integers(4, 17), st.integers(4, 17)),
    kernel=st.tuples(st.integers(2, 4), st.integers(2, 4)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    ceil=st.booleans(),
    counts_border=st.booleans(),
)


@pytest.mark.slow
@fuzz(9)
@given(case=pools, mcpu=st.sampled_from(TARGETS))
def test_a_pool_of_any_shape_is_right(server: CandidateClient, tmp_path: Path, case: Pool, mcpu: str) -> None:
    data = numbers((2, 3, *case.image), "float32", 0)
    weights = numbers((case.channels, 3, 1, 1), "float32", 1)
    with torch.inference_mode():
        image = functional.conv2d(torch.from_numpy(data), torch.from_numpy(weights))
        expected = _pooled(image, case).numpy()

    def build(x: relax.Expr) -> relax.Expr:
        image = op.nn.conv2d(x, relax.const(weights, "float32"))
        options = {"strides": case.stride, "padding": (case.padding,) * 4, "ceil_mode": case.ceil}
        if case.kind == "max":
            return op.nn.max_pool2d(image, case.kernel, **options)
        if case.kind == "average":
            return op.nn.avg_pool2d(image, case.kernel, count_include_pad=case.counts_border, **options)
        return op.mean(image, axis=[-1, -2], keepdims=True)

    check(server, main_of(build, data), mcpu, data, expected, tmp_path)


def _pooled(image: torch.Tensor, case: Pool) -> torch.Tensor:
    if case.kind == "max":
        return functional.max_pool2d(image, case.kernel, case.stride, case.padding, ceil_mode=case.ceil)
    if case.kind == "average":
        return functional.avg_pool2d(
            image, case.kernel, case.stride, case.padding, case.ceil, case.counts_border
        )
    return image.mean((2, 3), keepdim=True)
