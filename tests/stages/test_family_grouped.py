"""Convolutions of groups of few channels agree with float64, whatever their groups, windows and images."""

from dataclasses import dataclass
from math import ceil
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
from torch.nn import functional
from tvm import relax

from worker.candidates.client import CandidateClient
from worker.compiler.layout.blocked.grouped import pack_grouped
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.schedules.families.convolution import grouped
from worker.compiler.schedules.families.convolution.bundles import smallest_bundle
from worker.compiler.schedules.families.convolution.grouped_plan import GroupedPlan
from worker.compiler.schedules.processors import divisors

op = relax.op


@dataclass(frozen=True)
class Layer:
    """A grouped convolution behind a dense one, so that its image is in blocks, and its epilogue."""

    count: int
    inputs: int
    outputs: int
    image: tuple[int, ...]
    taps: int = 3
    stride: int = 1
    padding: int = 1
    dilation: int = 1
    batch: int = 1
    epilogue: str = "relu"

    @property
    def is_possible(self) -> bool:
        reach = (self.taps - 1) * self.dilation + 1
        return all(size + 2 * self.padding >= reach for size in self.image)


layers = st.builds(
    Layer,
    count=st.integers(2, 20),
    inputs=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]),
    outputs=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]),
    image=st.lists(st.integers(1, 19), min_size=1, max_size=2).map(tuple),
    taps=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 2),
    batch=st.integers(1, 3),
    epilogue=st.sampled_from(["none", "relu", "residual", "gelu"]),
).filter(lambda layer: layer.is_possible and layer.count * layer.inputs >= 16)


def weights_of(layer: Layer) -> tuple[Array, Array]:
    inputs = layer.count * layer.inputs
    dense = numbers(inputs, 3, *(1,) * len(layer.image), seed=1)
    taps = (layer.taps,) * len(layer.image)
    return dense, numbers(layer.count * layer.outputs, layer.inputs, *taps, seed=2)


def convolved(layer: Layer, data: Array) -> tvm.IRModule:
    dense, weights = map(relax.const, weights_of(layer))
    convolve = op.nn.conv1d if len(layer.image) == 1 else op.nn.conv2d

    def compute(x: relax.Expr) -> relax.Expr:
        result = convolve(
            op.nn.relu(convolve(x, dense)),
            weights,
            strides=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.count,
        )
        return followed_by(result, layer.epilogue)

    return main_of(compute, data)


def exact(layer: Layer, data: Array) -> Array:
    dense, weights = (torch.from_numpy(each).double() for each in weights_of(layer))
    convolve = functional.conv1d if len(layer.image) == 1 else functional.conv2d
    pixels = torch.relu(convolve(torch.from_numpy(data).double(), dense))
    window = (layer.stride, layer.padding, layer.dilation, layer.count)
    return exactly_followed_by(convolve(pixels, weights, None, *window), layer.epilogue).numpy()


def check(server: CandidateClient, layer: Layer, mcpu: str, folder: Path, in_bundles: bool = True) -> None:
    data, target = numbers(layer.batch, 3, *layer.image), target_of(mcpu)

    module = scheduled(convolved(layer, data), target)

    if in_bundles:
        assert any("grouped" in variable.name_hint for variable in module.get_global_vars())
    assert unclaimed_functions(module) == ()
    actual, expected = run_compiled(server, module, target, (data,), folder), exact(layer, data)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())


@pytest.mark.slow
@fuzz(12)
@given(layer=layers, mcpu=st.sampled_from(TARGETS))
def test_a_layer_of_any_shape_is_right(
    server: CandidateClient, tmp_path: Path, layer: Layer, mcpu: str
) -> None:
    check(server, layer, mcpu, tmp_path, in_bundles=False)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "layer",
    [
        Layer(16, 4, 4, (13, 11)),
        Layer(9, 4, 4, (14, 15), stride=2, batch=2),
        Layer(7, 12, 12, (9, 7), epilogue="residual"),
        Layer(4, 60, 60, (6, 5), taps=1, padding=0, epilogue="gelu"),
        Layer(12, 3, 6, (10, 9), padding=2, dilation=2),
        Layer(24, 1, 2, (8, 9), stride=2, epilogue="none"),
        Layer(12, 4, 2, (33,), taps=31, padding=15),
        Layer(4, 16, 32, (7, 7)),
        Layer(10, 4, 4, (2, 2), padding=2),
    ],
    ids=[
        "pairs",
        "strides and a bundle that lacks a group",
        "blocks that groups share",
        "more vectors than a tile holds",
        "dilation",
        "depthwise with two outputs",
        "a sequence and more taps than registers",
        "groups of whole blocks",
        "an image smaller than its window",
    ],
)
@pytest.mark.parametrize("mcpu", TARGETS)
def test_a_layer_is_right(server: CandidateClient, tmp_path: Path, layer: Layer, mcpu: str) -> None:
    check(server, layer, mcpu, tmp_path)


@pytest.mark.parametrize(
    "plan",
    [GroupedPlan(5, 1, 3, 4), GroupedPlan(3, 3, 1, 13), GroupedPlan(11, 1, 1, 1)],
    ids=["parts, and a last band that moves back", "taps one by one", "rows alone"],
)
def test_every_plan_is_right(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: GroupedPlan
) -> None:
    monkeypatch.setattr(grouped, "grouped_plans", lambda *_: (plan,))

    check(server, Layer(4, 12, 12, (13, 11), epilogue="residual"), "x86-64-v3", tmp_path)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 4), (1, 2), (24, 24), (6, 12), (5, 5), (32, 16)])
def test_a_bundle_is_the_fewest_groups_of_whole_blocks(inputs: int, outputs: int, lanes: int) -> None:
    bundle = smallest_bundle(inputs, outputs, lanes)

    fitting = [
        groups
        for groups in divisors(lanes, lanes)
        if groups * inputs % lanes == 0 and groups * outputs % lanes == 0
    ]
    assert bundle.groups == fitting[0]
    channels = range(bundle.groups * outputs)
    assert sorted(map(bundle.place_of, channels)) == list(channels)
    assert sorted(map(bundle.input_of, range(bundle.groups * inputs))) == list(range(bundle.groups * inputs))


def test_packed_weights_hold_every_weight_at_its_place() -> None:
    bundle = smallest_bundle(4, 4, 8)
    weights = numbers(3 * 4, 4, 3, 2)

    packed = pack_grouped(weights, bundle)

    assert packed.shape == (ceil(3 / 2), bundle.vectors, 3, 4, 2, 8)
    for output in range(12):
        number, channel = divmod(output, 2 * 4)
        vector, lane = divmod(bundle.place_of(channel), 8)
        np.testing.assert_array_equal(packed[number, vector, :, :, :, lane], weights[output].swapaxes(0, 1))
    assert np.count_nonzero(packed) == weights.size
