"""Convolutions agree with torch if they are a model's first, or if windows run right behind them."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from family_samples import (
    TARGETS,
    Array,
    exactly_followed_by,
    followed_by,
    fuzz,
    main_of,
    run_compiled,
    scheduled,
    target_of,
)
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.schedules.families.convolution import chain
from worker.compiler.schedules.families.convolution.chain import ChainPlan

op = relax.op


@dataclass(frozen=True)
class Pool:
    """A pool behind a convolution."""

    taps: int = 3
    stride: int = 2
    padding: int = 1
    dilation: int = 1
    ceil: bool = False
    is_mean: bool = False

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class Stem:
    """A convolution of a plain image with a bias, its epilogue and the pool behind it."""

    image: tuple[int, int]
    channels: int = 3
    outputs: int = 24
    taps: tuple[int, int] = (3, 3)
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    batch: int = 1
    epilogue: str = "relu"
    pool: Pool | None = None
    dtype: str = "float32"

    @property
    def output(self) -> tuple[int, int]:
        rows, columns = (
            (size + 2 * self.padding - (taps - 1) * self.dilation - 1) // self.stride + 1
            for size, taps in zip(self.image, self.taps, strict=True)
        )
        return rows, columns

    @property
    def is_possible(self) -> bool:
        least = 1 if self.pool is None else self.pool.reach - 2 * self.pool.padding
        return min(self.output) >= max(1, least)


pools = st.builds(
    Pool,
    taps=st.integers(2, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
    ceil=st.booleans(),
    is_mean=st.booleans(),
).filter(lambda pool: not (pool.is_mean and pool.dilation > 1))
stems = st.builds(
    Stem,
    image=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    channels=st.integers(1, 4),
    outputs=st.integers(1, 40),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    batch=st.integers(1, 3),
    epilogue=st.sampled_from(["none", "relu", "gelu"]),
    pool=st.one_of(st.none(), pools),
    dtype=st.sampled_from(["float32", "float32", "float64"]),
).filter(lambda case: case.is_possible)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def constants_of(case: Stem) -> tuple[Array, Array]:
    return numbers(case.outputs, case.channels, *case.taps, seed=1), numbers(1, case.outputs, 1, 1, seed=2)


def image_of(case: Stem) -> Array:
    return numbers(case.batch, case.channels, *case.image).astype(case.dtype)


def module_of(case: Stem, reads_again: bool = False) -> tvm.IRModule:
    weights, bias = (relax.const(values.astype(case.dtype), case.dtype) for values in constants_of(case))

    def compute(x: relax.Expr) -> relax.Expr:
        window = {"strides": case.stride, "padding": case.padding, "dilation": case.dilation}
        result = followed_by(op.add(op.nn.conv2d(x, weights, **window), bias), case.epilogue)
        pooled = result if case.pool is None else _pooled(result, case.pool)
        return op.add(op.mean(result), pooled) if reads_again else pooled

    return main_of(compute, image_of(case))


def _pooled(image: relax.Expr, pool: Pool) -> relax.Expr:
    window = {"strides": pool.stride, "padding": (pool.padding,) * 4, "ceil_mode": pool.ceil}
    if pool.is_mean:
        return op.nn.avg_pool2d(image, pool.taps, **window)
    return op.nn.max_pool2d(image, pool.taps, dilation=pool.dilation, **window)


def exact(case: Stem, data: Array) -> Array:
    weights, bias = (torch.from_numpy(values) for values in constants_of(case))
    window = (case.stride, case.padding, case.dilation)
    result = functional.conv2d(torch.from_numpy(data).double(), weights, bias.reshape(-1), *window)
    result = exactly_followed_by(result, case.epilogue)
    pool = case.pool
    if pool is None:
        return result.numpy()
    window = (pool.taps, pool.stride, pool.padding)
    if pool.is_mean:
        return functional.avg_pool2d(result, *window, pool.ceil, count_include_pad=False).numpy()
    return functional.max_pool2d(result, *window, pool.dilation, pool.ceil).numpy()


def check(server: CandidateClient, case: Stem, mcpu: str, folder: Path) -> tvm.IRModule:
    target = target_of(mcpu)

    module = scheduled(module_of(case), target)

    assert unclaimed_functions(module) == ()
    data = image_of(case)
    actual, expected = run_compiled(server, module, target, (data,), folder), exact(case, data)
    tolerance = 1e-5 if case.dtype == "float32" else 1e-12
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    return module


def functions_of(module: tvm.IRModule, name: str) -> list[str]:
    return [
        str(variable.name_hint) for variable in module.get_global_vars() if name in str(variable.name_hint)
    ]


@pytest.mark.slow
@fuzz(24)
@given(case=stems, mcpu=st.sampled_from(TARGETS))
def test_a_stem_of_any_shape_is_right(server: CandidateClient, tmp_path: Path, case: Stem, mcpu: str) -> None:
    check(server, case, mcpu, tmp_path)


RESNET = Stem((57, 61), outputs=32, taps=(7, 7), stride=2, padding=3, pool=Pool())
JOINED = {
    "as in a ResNet": RESNET,
    "as in a VGG": Stem((40, 48), outputs=24, pool=Pool(2, 2, 0)),
    "as in a SqueezeNet": Stem((45, 45), outputs=64, stride=2, padding=0, pool=Pool(3, 2, 0, ceil=True)),
    "pools that overlap by two rows": replace(RESNET, pool=Pool(3, 1, 1)),
    "pools with rows between them": replace(RESNET, pool=Pool(2, 3, 0)),
    "dilated pools": replace(RESNET, pool=Pool(3, 2, 1, dilation=2)),
    "means": replace(RESNET, pool=Pool(is_mean=True)),
    "no epilogue": replace(RESNET, epilogue="none"),
    "an expensive epilogue": replace(RESNET, epilogue="gelu"),
    "an expensive epilogue without a border": replace(RESNET, epilogue="gelu", pool=Pool(2, 2, 0)),
    "several images": replace(RESNET, batch=3),
    "float64": replace(RESNET, dtype="float64"),
}


NARROW = ("as in a ResNet", "an expensive epilogue", "float64")
"""Those that are tested for narrow vectors, too, as any stem is above."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "mcpu"),
    [*((name, "x86-64-v3") for name in JOINED), *((name, "x86-64-v2") for name in NARROW)],
)
def test_a_pool_behind_a_stem_joins_it(server: CandidateClient, tmp_path: Path, name: str, mcpu: str) -> None:
    module = check(server, JOINED[name], mcpu, tmp_path)

    assert len(functions_of(module, "pool")) == 1
    assert functions_of(module, "pool") == functions_of(module, "conv2d")


def test_a_pool_stays_apart_if_others_read_the_convolution_too() -> None:
    module = scheduled(module_of(RESNET, reads_again=True), target_of("x86-64-v3"))

    assert not set(functions_of(module, "pool")) & set(functions_of(module, "conv2d"))


def test_a_pool_stays_apart_if_threads_would_repeat_rows() -> None:
    module = scheduled(module_of(RESNET), target_of("x86-64-v3", cores=64))

    assert not set(functions_of(module, "pool")) & set(functions_of(module, "conv2d"))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "plan",
    [ChainPlan(1, 5, 1, True), ChainPlan(2, 3, 2, False), ChainPlan(4, 2, 14, True)],
    ids=["rows alone, taps unrolled", "bands", "all rows"],
)
def test_every_plan_is_right(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: ChainPlan
) -> None:
    monkeypatch.setattr(chain, "chain_plans", lambda *_: (plan,))

    check(server, replace(RESNET, image=(55, 61)), "x86-64-v3", tmp_path)


@dataclass(frozen=True)
class Expansion:
    """A convolution in blocks, and a depthwise one of its result."""

    image: tuple[int, int] = (35, 37)
    inputs: int = 20
    outputs: int = 72
    taps: int = 1
    stride: int = 1
    padding: int = 1
    epilogue: str = "clip"


def expanded(case: Expansion, data: Array) -> tuple[tvm.IRModule, Array]:
    first, dense, depthwise = (
        numbers(*shape, seed=seed).astype(np.float32)
        for seed, shape in enumerate(
            [
                (case.inputs, 3, 1, 1),
                (case.outputs, case.inputs, case.taps, case.taps),
                (case.outputs, 1, 3, 3),
            ]
        )
    )

    def compute(x: relax.Expr) -> relax.Expr:
        image = op.nn.conv2d(op.nn.conv2d(x, relax.const(first)), relax.const(dense), padding=case.taps // 2)
        image = followed_by(image, case.epilogue)
        window = {"strides": case.stride, "padding": case.padding, "groups": case.outputs}
        return op.nn.relu(op.nn.conv2d(image, relax.const(depthwise), **window))

    sides = (torch.from_numpy(each).double() for each in (data, first, dense, depthwise))
    pixels, first_weights, dense_weights, depthwise_weights = sides
    image = functional.conv2d(pixels, first_weights)
    image = functional.conv2d(image, dense_weights, padding=case.taps // 2)
    image = exactly_followed_by(image, case.epilogue)
    result = functional.conv2d(image, depthwise_weights, None, case.stride, case.padding, 1, case.outputs)
    return main_of(compute, data), torch.relu(result).numpy()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "case",
    [
        Expansion(),
        Expansion(stride=2),
        Expansion(padding=0),
        Expansion(taps=5, stride=2),
        Expansion(epilogue="silu"),
    ],
    ids=["as in a MobileNet", "strides", "no border", "taps", "an expensive epilogue"],
)
@pytest.mark.parametrize("mcpu", TARGETS)
def test_a_depthwise_convolution_joins_the_large_image_before_it(
    server: CandidateClient, tmp_path: Path, case: Expansion, mcpu: str
) -> None:
    data, target = numbers(2, 3, *case.image).astype(np.float32), target_of(mcpu)
    module, expected = expanded(case, data)

    module = scheduled(module, target)

    assert unclaimed_functions(module) == ()
    (name,) = functions_of(module, "depthwise")
    assert name.startswith("fused_conv2d")
    actual = run_compiled(server, module, target, (data,), tmp_path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())


def test_a_depthwise_convolution_stays_apart_if_the_image_fits_the_cache() -> None:
    module, _ = expanded(Expansion(image=(14, 14)), numbers(1, 3, 14, 14).astype(np.float32))

    module = scheduled(module, target_of("x86-64-v3"))

    (name,) = functions_of(module, "depthwise")
    assert name.startswith(("depthwise", "fused_depthwise"))


def test_an_infinity_reaches_only_the_windows_that_hold_it(server: CandidateClient, tmp_path: Path) -> None:
    case = replace(RESNET, epilogue="none")
    data, target = image_of(case), target_of("x86-64-v3")
    data[0, 0, 0, 0], data[0, 1, 30, 17] = np.inf, -np.inf

    actual = run_compiled(server, scheduled(module_of(case), target), target, (data,), tmp_path)

    np.testing.assert_allclose(actual, exact(case, data), rtol=1e-5, atol=1e-4)
