"""Joins, slices and shuffles of any number of channels stay in blocks and agree with torch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from family_samples import TARGETS, Array, fuzz, main_of, numbers, run_compiled, scheduled, target_of
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from worker.candidates.client import CandidateClient

op = relax.op

NONE, RELU, BIAS, POOL, DEPTHWISE, SLICE = "none", "relu", "bias", "pool", "depthwise", "slice"


@dataclass(frozen=True)
class Case:
    """Convolutions to ``parts`` channels, joined; perhaps shuffled; a step; convolutions of both halves."""

    batch: int
    parts: tuple[int, ...]
    groups: int
    step: str
    outputs: int
    kernel: int

    @property
    def joined(self) -> int:
        """Channels of the join, twice for each part, so that it can be halved."""
        return 2 * sum(self.parts)

    @property
    def shuffles(self) -> bool:
        """Whether the channels divide into the groups."""
        return self.groups > 1 and self.joined % self.groups == 0


cases = st.builds(
    Case,
    batch=st.integers(1, 2),
    parts=st.lists(st.integers(1, 21), min_size=1, max_size=3).map(tuple),
    groups=st.integers(1, 3),
    step=st.sampled_from([NONE, RELU, BIAS, POOL, DEPTHWISE, SLICE]),
    outputs=st.sampled_from([1, 8, 40]),
    kernel=st.sampled_from([1, 3]),
)

INPUTS, SIZE, EVEN = 5, 7, 8


def weights_of(case: Case) -> list[Array]:
    """The weights of the parts, of the step's depthwise convolution or bias, and of the last convolution."""
    parts = [numbers(size, INPUTS, 1, 1, seed=seed) for seed, size in enumerate((*case.parts, *case.parts))]
    half = case.joined // 2
    first = half - half // 3 if case.step == SLICE else half
    return [
        *parts,
        numbers(half, 1, 3, 3, seed=90),
        numbers(1, half, 1, 1, seed=91),
        numbers(case.outputs, first, case.kernel, case.kernel, seed=92),
    ]


def expected(case: Case, image: Array) -> Array:
    *parts, taps, bias, last = (torch.from_numpy(each) for each in weights_of(case))
    x = torch.from_numpy(image)
    joined = torch.cat([functional.conv2d(x, each) for each in parts], 1)
    if case.shuffles:
        joined = functional.channel_shuffle(joined, case.groups)
    steps = {
        NONE: lambda half: half,
        RELU: torch.relu,
        BIAS: lambda half: half + bias,
        POOL: lambda half: functional.max_pool2d(half, 3, 2, 1),
        DEPTHWISE: lambda half: functional.conv2d(half, taps, padding=1, groups=half.shape[1]),
        SLICE: lambda half: half[:, half.shape[1] // 3 :],
    }
    halves = [functional.conv2d(steps[case.step](half), last) for half in joined.chunk(2, 1)]
    return torch.stack(halves).numpy()


def graph(case: Case, x: relax.Expr) -> relax.Expr:
    *parts, taps, bias, last = (relax.const(each) for each in weights_of(case))
    half = case.joined // 2
    joined = op.concat([op.nn.conv2d(x, each) for each in parts], axis=1)
    if case.shuffles:
        sizes = tuple(map(int, list(x.ty.shape)[2:]))
        inner = (case.batch, case.groups, case.joined // case.groups, *sizes)
        swapped = op.permute_dims(op.reshape(joined, inner), [0, 2, 1, 3, 4])
        joined = op.reshape(swapped, (case.batch, case.joined, *sizes))
    steps = {
        NONE: lambda each: each,
        RELU: op.nn.relu,
        BIAS: lambda each: op.add(each, bias),
        POOL: lambda each: op.nn.max_pool2d(each, (3, 3), strides=2, padding=(1, 1, 1, 1)),
        DEPTHWISE: lambda each: op.nn.conv2d(each, taps, padding=1, groups=half),
        SLICE: lambda each: op.strided_slice(each, [1], [half // 3], [half]),
    }
    halves = op.split(joined, 2, axis=1)
    return op.stack([op.nn.conv2d(steps[case.step](halves[side]), last) for side in range(2)], axis=0)


@pytest.mark.slow
@fuzz(8)
@given(case=cases, mcpu=st.sampled_from(TARGETS))
def test_channels_in_any_slots_are_right(
    server: CandidateClient, tmp_path: Path, case: Case, mcpu: str
) -> None:
    image, target = numbers(case.batch, INPUTS, SIZE, SIZE, seed=99), target_of(mcpu)
    module = scheduled(main_of(lambda x: graph(case, x), image), target)
    actual = run_compiled(server, module, target, (image,), tmp_path)
    wanted = expected(case, image)
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("case", "copies"),
    [
        (Case(1, (8, 16), 1, NONE, 40, 1), ["join", "cut", "cut1"]),
        (Case(1, (8, 16), 2, RELU, 40, 1), ["join", "gather", "relu", "gather1", "relu"]),
        (Case(1, (5,), 1, NONE, 40, 1), ["join", "gather", "gather1"]),
    ],
    ids=["whole blocks", "a shuffle", "parts with gaps"],
)
def test_only_channels_that_are_apart_are_copied(case: Case, copies: list[str]) -> None:
    image = numbers(case.batch, INPUTS, EVEN, EVEN, seed=99)
    module = scheduled(main_of(lambda x: graph(case, x), image), target_of("x86-64-v3"))
    calls = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    names = [str(call.args[0].name_hint) for call in calls if isinstance(call, relax.Call)]
    assert [name for name in names if "conv" not in name and "stack" not in name] == copies


def activated(x: relax.Expr) -> relax.Expr:
    """A layer of a dense block: a join, scaled and activated, before a convolution of one tap."""
    parts = [op.nn.conv2d(x, relax.const(numbers(24, INPUTS, 1, 1, seed=number))) for number in range(2)]
    scale, shift = (relax.const(numbers(1, 48, 1, 1, seed=number)) for number in (2, 3))
    joined = op.concat([parts[0], op.nn.relu(parts[1])], axis=1)
    image = op.nn.relu(op.add(op.multiply(joined, scale), shift))
    return op.nn.conv2d(image, relax.const(numbers(40, 48, 1, 1, seed=4)))


def pooled(x: relax.Expr) -> relax.Expr:
    """The layer between dense blocks."""
    return op.nn.avg_pool2d(activated(x), (2, 2), strides=2)


def activated_by_torch(image: Array) -> torch.Tensor:
    x = torch.from_numpy(image)
    weights = [torch.from_numpy(numbers(24, INPUTS, 1, 1, seed=seed)) for seed in range(2)]
    parts = [functional.conv2d(x, each) for each in weights]
    scale, shift = (torch.from_numpy(numbers(1, 48, 1, 1, seed=number)) for number in (2, 3))
    joined = torch.cat([parts[0], torch.relu(parts[1])], 1)
    last = torch.from_numpy(numbers(40, 48, 1, 1, seed=4))
    return functional.conv2d(torch.relu(joined * scale + shift), last)


ACTIVATED = {
    "odd sizes": (activated, (1, 9, 17), 0),
    "two images": (activated, (2, 8, 14), 0),
    "few rows": (activated, (1, 7, 14), 1),
    "a pool": (pooled, (1, 6, 9), 0),
}
"""A graph, the batch and the sizes of its input, and the functions that only scale and activate."""


@pytest.mark.parametrize("name", ACTIVATED)
def test_a_join_is_activated_by_what_reads_it(server: CandidateClient, tmp_path: Path, name: str) -> None:
    build, (batch, *sizes), copies = ACTIVATED[name]
    image, target = numbers(batch, INPUTS, *sizes, seed=99), target_of("x86-64-v3")
    module = scheduled(main_of(build, image), target)
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    wanted = activated_by_torch(image)
    wanted = functional.avg_pool2d(wanted, 2, 2) if build is pooled else wanted

    assert sum("multiply" in each and "conv" not in each for each in names) == copies
    actual = run_compiled(server, module, target, (image,), tmp_path)
    np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))
