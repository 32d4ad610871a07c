"""Convolutions by Winograd's algorithm agree with float64, and give way where they would not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    numbers,
    run_compiled,
    scheduled,
    target_of,
)
from hypothesis import given
from hypothesis import strategies as st
from stage_samples import capture_module, compile_to_library, optimized
from torch import nn
from torch.nn import functional
from tvm import relax

from bessemer.contract.options import Convolutions, OptimizeOptions
from bessemer.contract.problem import ErrorCode
from worker.candidates.client import CandidateClient
from worker.compiler.layout.blocked import convolution_rule
from worker.compiler.layout.blocked.winograd import pack_winograd, winograd_error
from worker.compiler.pipeline.recompile import uses_winograd, verify_or_recompile
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.schedules.families.convolution import winograd
from worker.compiler.schedules.families.convolution.conv2d import ConvolutionShape
from worker.compiler.schedules.families.convolution.winograd_plan import WinogradPlan, WinogradShape
from worker.compiler.schedules.processors import Machine, divisors
from worker.compiler.values import StageContext
from worker.errors import JobError

op = relax.op


@dataclass(frozen=True)
class Layer:
    """A convolution of 3 x 3 taps, or 3 of a sequence, its tile, and its epilogue."""

    side: int
    blocks: int
    batch: int
    inputs: int
    outputs: int
    image: tuple[int, ...]
    padding: tuple[int, ...]
    epilogue: str

    @property
    def taps(self) -> tuple[int, ...]:
        return (3,) * len(self.image)


sizes = st.one_of(
    st.tuples(
        st.tuples(*[st.integers(3, 19)] * dimensions),
        st.tuples(*[st.integers(0, 2)] * dimensions),
    )
    for dimensions in (1, 2)
)
layers = st.builds(
    lambda size, **others: Layer(image=size[0], padding=size[1], **others),
    size=sizes,
    side=st.sampled_from([2, 4]),
    blocks=st.integers(1, 4),
    batch=st.integers(1, 4),
    inputs=st.integers(16, 40),
    outputs=st.integers(1, 40),
    epilogue=st.sampled_from(["none", "relu", "residual", "gelu"]),
)


@contextmanager
def forced(side: int, blocks: int) -> Iterator[None]:
    """Every convolution that can be computed by Winograd's algorithm has these tiles and groups."""

    def choose(direct: ConvolutionShape, machine: Machine) -> tuple[WinogradShape, ...]:
        dimensions = 1 if direct.taps == 3 * direct.channels * machine.lanes(32) else 2
        shape = WinogradShape(
            side=side,
            batch=direct.batch,
            inputs=direct.channels,
            outputs=direct.blocks,
            rows=direct.rows if dimensions == 2 else 1,
            columns=direct.columns if dimensions == 2 else direct.rows * direct.columns,
            blocks=divisors(direct.blocks, blocks)[-1],
            lanes=machine.lanes(32),
            dimensions=dimensions,
        )
        return (shape,)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution_rule, "faster_by_winograd", choose)
        patch.setattr(convolution_rule, "winograd_error", lambda *_: 0.0)
        yield


def convolved(layer: Layer, data: Array, weights: Array, bias: Array) -> tvm.IRModule:
    def compute(x: relax.Expr) -> relax.Expr:
        convolve = op.nn.conv1d if len(layer.image) == 1 else op.nn.conv2d
        result = convolve(x, relax.const(weights), padding=layer.padding * 2)
        result = op.add(result, relax.const(bias.reshape(1, -1, *(1 for _ in layer.image))))
        return followed_by(result, layer.epilogue)

    return main_of(compute, data)


def exact(layer: Layer, data: Array, weights: Array, bias: Array) -> Array:
    values = (torch.from_numpy(each).double() for each in (data, weights, bias))
    convolve = functional.conv1d if len(layer.image) == 1 else functional.conv2d
    return exactly_followed_by(convolve(*values, padding=layer.padding), layer.epilogue).numpy()


def check(server: CandidateClient, layer: Layer, mcpu: str, folder: Path) -> None:
    data = numbers(layer.batch, layer.inputs, *layer.image)
    weights = numbers(layer.outputs, layer.inputs, *layer.taps, seed=1)
    bias = numbers(layer.outputs, seed=2)
    target = target_of(mcpu)
    with forced(layer.side, layer.blocks):
        module = scheduled(convolved(layer, data, weights, bias), target)

    assert any("winograd" in variable.name_hint for variable in module.get_global_vars())
    assert unclaimed_functions(module) == ()
    actual = run_compiled(server, module, target, (data,), folder)
    expected = exact(layer, data, weights, bias)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=5e-6 * np.abs(expected).max())


@pytest.mark.slow
@fuzz(8)
@given(layer=layers, mcpu=st.sampled_from(TARGETS))
def test_a_layer_of_any_shape_is_right(
    server: CandidateClient, tmp_path: Path, layer: Layer, mcpu: str
) -> None:
    check(server, layer, mcpu, tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "layer",
    [
        Layer(4, 2, 1, 32, 32, (28, 28), (1, 1), "residual"),
        Layer(2, 4, 3, 32, 40, (7, 7), (1, 1), "relu"),
        Layer(4, 1, 4, 17, 9, (3, 3), (0, 0), "none"),
        Layer(4, 2, 2, 24, 16, (5, 18), (2, 0), "gelu"),
        Layer(4, 2, 2, 24, 32, (150,), (1,), "residual"),
        Layer(2, 1, 3, 17, 9, (3,), (0,), "relu"),
        Layer(4, 1, 1, 16, 16, (13,), (2,), "gelu"),
    ],
    ids=lambda layer: f"F{layer.side}-{layer.image}",
)
def test_edges_and_batches_are_right(server: CandidateClient, tmp_path: Path, layer: Layer) -> None:
    check(server, layer, "x86-64-v3", tmp_path)


@pytest.mark.parametrize(
    ("layer", "plan"),
    [
        (Layer(4, 2, 2, 64, 32, (56, 51), (1, 1), "relu"), WinogradPlan(5, 13, 1)),
        (Layer(2, 2, 3, 64, 64, (40, 41), (0, 2), "residual"), WinogradPlan(4, 9, 2)),
        (Layer(4, 2, 2, 64, 64, (3001,), (1,), "none"), WinogradPlan(4, 22, 1)),
    ],
    ids=["one group", "several parts", "a sequence"],
)
def test_a_layer_of_an_image_from_beyond_the_cache_is_right(
    server: CandidateClient, tmp_path: Path, layer: Layer, plan: WinogradPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "winograd_plans", lambda *_: (plan,))
    check(server, layer, "x86-64-v3", tmp_path)


@pytest.mark.parametrize(("size", "prefetches"), [(56, True), (28, False)])
def test_the_pixels_of_the_next_strip_are_prefetched_if_the_cache_cannot_hold_the_image(
    size: int, prefetches: bool
) -> None:
    layer = Layer(4, 2, 1, 64, 32, (size, size), (1, 1), "relu")
    data, weights, bias = numbers(1, 64, size, size), numbers(32, 64, 3, 3), numbers(32)
    with forced(layer.side, layer.blocks):
        module = scheduled(convolved(layer, data, weights, bias), target_of("x86-64-v3"))

    assert ("following" in module.script()) is prefetches


@pytest.mark.parametrize("plan", [WinogradPlan(3, 5, 2), WinogradPlan(1, 1, 1), WinogradPlan(4, 14, 1)])
def test_every_plan_is_right(
    server: CandidateClient, tmp_path: Path, plan: WinogradPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "winograd_plans", lambda *_: (plan,))

    check(server, Layer(2, 1, 2, 16, 32, (9, 11), (1, 1), "relu"), "x86-64-v3", tmp_path)


@pytest.mark.parametrize(
    ("inputs", "prefetches"),
    [pytest.param(160, True, id="from memory"), pytest.param(16, False, id="in the cache")],
)
def test_transformed_weights_that_come_from_memory_are_prefetched(
    server: CandidateClient, tmp_path: Path, inputs: int, prefetches: bool
) -> None:
    layer = Layer(2, 2, 1, inputs, 96 if prefetches else 16, (7, 9), (1, 1), "relu")
    data, weights, bias = (
        numbers(1, inputs, 7, 9),
        numbers(layer.outputs, inputs, 3, 3),
        numbers(layer.outputs),
    )
    target = target_of("x86-64-v3")

    with forced(layer.side, layer.blocks):
        module = scheduled(convolved(layer, data, weights, bias), target)

    assert ("prefetch" in str(module)) is prefetches
    check(server, layer, "x86-64-v3", tmp_path)


def test_an_infinity_spreads_over_its_tile_and_no_further(server: CandidateClient, tmp_path: Path) -> None:
    layer = Layer(4, 2, 1, 16, 16, (12, 12), (1, 1), "none")
    data = numbers(1, 16, 12, 12)
    data[0, 0, 6, 6] = np.inf
    weights, bias = numbers(16, 16, 3, 3, seed=1), numbers(16, seed=2)
    target = target_of("x86-64-v3")
    with forced(4, 2):
        module = scheduled(convolved(layer, data, weights, bias), target)

    actual = run_compiled(server, module, target, (data,), tmp_path)

    assert np.isnan(actual[:, :, 4:8, 4:8]).all()
    actual[:, :, 4:8, 4:8] = 0
    assert np.isfinite(actual).all()


@pytest.mark.parametrize("taps", [(3, 3), (3,)])
def test_the_error_against_float64_grows_with_the_tile(taps: tuple[int, ...]) -> None:
    weights = numbers(64, 64, *taps) / 24

    small, large = winograd_error(weights, 2), winograd_error(weights, 4)

    assert 0 < small < large < 1e-5


def test_weights_that_are_not_finite_have_an_infinite_error() -> None:
    weights = numbers(4, 4, 3, 3)
    weights[0, 0, 0, 0] = np.nan

    assert winograd_error(weights, 4) == np.inf


@pytest.mark.parametrize(
    ("errors", "side"), [({2: 0.0, 4: 0.0}, 4), ({2: 0.0, 4: 1.0}, 2), ({2: 1.0, 4: 1.0}, None)]
)
def test_the_next_tile_or_a_direct_convolution_replaces_one_with_a_large_error(
    errors: dict[int, float], side: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution_rule, "winograd_error", lambda _, side: errors[side])
    packed: list[int] = []

    def pack(weights: Array, side: int, lanes: int, blocks: int) -> Array:
        packed.append(side)
        return pack_winograd(weights, side, lanes, blocks)

    monkeypatch.setattr(convolution_rule, "pack_winograd", pack)
    layer = Layer(4, 2, 1, 64, 64, (56, 56), (1, 1), "none")
    data, weights = numbers(1, 64, 56, 56), numbers(64, 64, 3, 3)

    scheduled(convolved(layer, data, weights, numbers(64)), target_of("znver3"))

    assert packed == ([] if side is None else [side])


@pytest.mark.parametrize(
    ("image", "strides", "dilation", "used"),
    [
        ((3000,), 1, 1, True),
        ((3000,), 2, 1, False),
        ((3000,), 1, 2, False),
        ((4,), 1, 1, False),
    ],
)
def test_sequences_use_it_with_neighboring_windows_and_taps(
    image: tuple[int, ...], strides: int, dilation: int, used: bool
) -> None:
    weights = relax.const(numbers(64, 64, 3))

    def compute(x: relax.Expr) -> relax.Expr:
        return op.nn.conv1d(x, weights, strides=strides, padding=dilation, dilation=dilation)

    module = scheduled(main_of(compute, numbers(1, 64, *image)), target_of("znver3"))

    assert any("conv1d_winograd" in variable.name_hint for variable in module.get_global_vars()) is used


class Convolved(nn.Module):
    """A layer for which Winograd's algorithm is expected to be faster."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


IMAGE = torch.randn(1, 64, 56, 56, generator=torch.Generator().manual_seed(0))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("convolutions", "used"), [(Convolutions.AUTOMATIC, True), (Convolutions.DIRECT, False)]
)
def test_the_request_may_ask_for_direct_convolutions(
    convolutions: Convolutions, used: bool, context: StageContext
) -> None:
    options = OptimizeOptions(convolutions=convolutions)
    found = optimized(capture_module(Convolved(), IMAGE, optimize=options), context)

    assert uses_winograd(found.module) is used


def test_a_library_whose_outputs_differ_is_compiled_again_directly(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution_rule, "pack_winograd", lambda *given: pack_winograd(*given) * 1.01)
    built = compile_to_library(capture_module(Convolved(), IMAGE), context)

    verified = verify_or_recompile(built, context)

    assert verified.winograd_mismatch is not None
    assert "elements differ" in verified.winograd_mismatch
    assert not uses_winograd(verified.built.tuned.optimized.module)
    assert [comparison.mismatches for comparison in verified.comparisons] == [0]


def test_a_mismatch_without_winograds_algorithm_stays_a_mismatch(
    context: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = convolution_rule.pack_constant
    monkeypatch.setattr(convolution_rule, "pack_constant", lambda *given: packed(*given) * np.float32(1.01))
    direct = OptimizeOptions(convolutions=Convolutions.DIRECT)
    built = compile_to_library(capture_module(Convolved(), IMAGE, optimize=direct), context)

    with pytest.raises(JobError) as raised:
        verify_or_recompile(built, context)

    assert raised.value.code is ErrorCode.VERIFY_MISMATCH
