"""Convolutions of sequences and volumes, transposed ones, of every dtype, with weights that are inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import pytest
import torch
import tvm
from family_samples import TARGETS, Array, fuzz, main_of, run_compiled, scheduled, source_of, target_of
from hypothesis import given
from hypothesis import strategies as st
from stage_samples import capture_module, make_context, optimized
from torch import nn
from torch.nn import functional
from tvm import relax
from tvm.sym import Analyzer

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import schedule_rest, unclaimed_functions
from worker.compiler.schedules.families.convolution.phases import Phases, choose_tile
from worker.compiler.schedules.processors import Machine

op = relax.op
ORDINARY = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
TRANSPOSED = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}
TOLERANCES = {"bfloat16": 1e-5, "float16": 1e-3, "float32": 1e-5, "float64": 1e-12, "int8": 0, "int32": 0}
HALVES = ("bfloat16", "float16")
LARGEST_IMAGE = {1: 90, 2: 9, 3: 6}
LARGEST_KERNEL = {1: 17, 2: 4, 3: 3}


@dataclass(frozen=True)
class Convolution:
    """A convolution, a bias and an activation; ``extra`` is the output padding of a transposed one."""

    batch: int
    groups: int
    inputs: int
    outputs: int
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    extra: tuple[int, ...] | None
    dtype: str = "float32"
    constant: bool = True

    @property
    def dimensions(self) -> int:
        return len(self.image)

    @property
    def sum_dtype(self) -> str:
        return "float32" if self.dtype in HALVES else self.dtype

    @property
    def weights_shape(self) -> tuple[int, ...]:
        if self.extra is None:
            return (self.groups * self.outputs, self.inputs, *self.kernel)
        return (self.groups * self.inputs, self.outputs, *self.kernel)

    @property
    def is_possible(self) -> bool:
        reach = [(size - 1) * apart + 1 for size, apart in zip(self.kernel, self.dilation, strict=True)]
        if self.extra is None:
            edges = zip(self.image, self.padding, reach, strict=True)
            return all(size + 2 * pad >= needed for size, pad, needed in edges)
        sizes = zip(self.image, self.strides, self.padding, reach, self.extra, strict=True)
        return all(
            (size - 1) * stride - 2 * pad + needed + extra > 0 and extra < stride
            for size, stride, pad, needed, extra in sizes
        )


@st.composite
def drawn(draw: st.DrawFn, transposed: bool) -> Convolution:
    dimensions = draw(st.integers(1, 3))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return draw(st.tuples(*[st.integers(least, most)] * dimensions))

    depthwise = draw(st.integers(0, 4)) == 0
    channels = st.sampled_from([1, 3, 5, 13, 16, 24])
    return Convolution(
        batch=draw(st.integers(1, 3)),
        groups=draw(st.integers(2, 20)) if depthwise else draw(st.sampled_from([1, 1, 1, 2, 3, 6])),
        inputs=1 if depthwise else draw(channels),
        outputs=1 if depthwise else draw(channels),
        image=sizes(1, LARGEST_IMAGE[dimensions]),
        kernel=sizes(1, LARGEST_KERNEL[dimensions]),
        strides=sizes(1, 3),
        padding=sizes(0, 2),
        dilation=sizes(1, 2),
        extra=sizes(0, 1) if transposed else None,
    )


def convolutions(transposed: bool) -> st.SearchStrategy[Convolution]:
    return drawn(transposed).filter(lambda case: case.is_possible)


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return generator.integers(-4, 5, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def reference(case: Convolution, data: Array, weights: Array, bias: Array) -> Array:
    """Torch's result in float64; sums of integers wrap."""
    tensors = [torch.from_numpy(values.astype("float64")) for values in (data, weights)]
    options = (case.strides, case.padding)
    if case.extra is None:
        compute = (functional.conv1d, functional.conv2d, functional.conv3d)[case.dimensions - 1]
        result = compute(*tensors, None, *options, case.dilation, case.groups)
    else:
        transposed = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)
        compute = transposed[case.dimensions - 1]
        result = compute(*tensors, None, *options, case.extra, case.groups, case.dilation)
    summed = result.numpy() + bias
    exact = summed.astype("int64") if case.dtype.startswith("int") else summed
    return np.maximum(exact.astype(case.sum_dtype), 0)


def check(server: CandidateClient, case: Convolution, mcpu: str, folder: Path) -> None:
    data = numbers((case.batch, case.groups * case.inputs, *case.image), case.dtype, 0)
    weights = numbers(case.weights_shape, case.dtype, 1)
    bias = numbers((1, case.groups * case.outputs, *(1,) * case.dimensions), case.sum_dtype, 2)

    def build(x: relax.Expr, given: relax.Expr | None = None) -> relax.Expr:
        packed = relax.const(weights, case.dtype) if given is None else given
        shared = {
            "strides": list(case.strides), "padding": list(case.padding) * 2,
            "dilation": list(case.dilation), "groups": case.groups, "out_dtype": case.sum_dtype,
        }  # fmt: skip
        if case.extra is None:
            result = ORDINARY[case.dimensions](x, packed, **shared)
        else:
            result = TRANSPOSED[case.dimensions](x, packed, output_padding=list(case.extra), **shared)
        return op.nn.relu(op.add(result, relax.const(bias, case.sum_dtype)))

    inputs = (data,) if case.constant else (data, weights)
    target = target_of(mcpu)
    module = scheduled(main_of(build, *inputs), target)
    assert unclaimed_functions(module) == ()
    actual = run_compiled(server, module, target, inputs, folder)
    expected, tolerance = reference(case, data, weights, bias), TOLERANCES[case.dtype]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@fuzz(8)
@given(case=convolutions(transposed=False), mcpu=st.sampled_from(TARGETS))
def test_a_convolution_of_any_dimension_is_right(
    server: CandidateClient, tmp_path: Path, case: Convolution, mcpu: str
) -> None:
    check(server, case, mcpu, tmp_path)


@fuzz(8)
@given(case=convolutions(transposed=True), mcpu=st.sampled_from(TARGETS))
def test_a_transposed_convolution_of_any_dimension_is_right(
    server: CandidateClient, tmp_path: Path, case: Convolution, mcpu: str
) -> None:
    check(server, case, mcpu, tmp_path)


SQUARE = Convolution(2, 1, 20, 12, (7, 9), (3, 2), (2, 1), (1, 0), (1, 2), None)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float64", "constant": False},
        {"dtype": "float16"},
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "inputs": 3, "constant": False},
        {"dtype": "bfloat16", "groups": 2, "inputs": 5},
        {"dtype": "bfloat16", "groups": 6, "inputs": 1, "outputs": 1},
        {"dtype": "bfloat16", "groups": 24, "inputs": 4, "outputs": 4, "dilation": (1, 1)},
        {"dtype": "bfloat16", "extra": (1, 0)},
        {"dtype": "int8"},
        {"dtype": "int32", "constant": False},
        {"groups": 6, "inputs": 5, "outputs": 3, "constant": False},
        {"groups": 6, "inputs": 5, "outputs": 3, "constant": False, "extra": (1, 0)},
        {"groups": 11, "inputs": 1, "outputs": 1, "constant": False},
        {"dtype": "float16", "extra": (0, 0)},
        {"kernel": (9, 9), "padding": (4, 4), "dilation": (1, 1), "image": (2, 2)},
        {"batch": 33, "inputs": 1, "kernel": (1, 1), "padding": (0, 0)},
        {"inputs": 1, "kernel": (1, 1)},
        {"inputs": 1, "kernel": (1, 1), "padding": (0, 0), "extra": (0, 0)},
        {"groups": 9, "inputs": 1, "outputs": 1, "kernel": (1, 1)},
    ],
)
def test_odd_convolutions_are_right_and_claimed(
    server: CandidateClient, tmp_path: Path, changes: dict[str, object]
) -> None:
    check(server, Convolution(**{**vars(SQUARE), **changes}), "x86-64-v3", tmp_path)


class Decoder(nn.Module):
    """A small U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardswish())
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.last = nn.Conv2d(32, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.first(x)
        deep = self.second(functional.max_pool2d(wide, 2))
        return self.last(torch.cat([wide, torch.relu(self.up(deep))], 1)).mean((2, 3), keepdim=True)


class Listener(nn.Module):
    """Convolutions, pools and a transposed convolution of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, 16, 10, 5), nn.GELU(), nn.MaxPool1d(2))
        self.body = nn.Sequential(nn.Conv1d(16, 32, 3, padding=2, dilation=2), nn.AvgPool1d(2))
        self.up = nn.ConvTranspose1d(32, 16, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.adaptive_avg_pool1d(torch.tanh(self.up(self.body(self.stem(x)))), 1)


class Classifier(nn.Module):
    """A linear layer of a flattened image, which a sum may read, too."""

    def __init__(self, channels: int, sums_up: bool = False) -> None:
        super().__init__()
        self.sums_up = sums_up
        self.image = nn.Conv2d(3, channels, 3, padding=1)
        self.hidden = nn.Linear(channels * 16, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = torch.flatten(functional.max_pool2d(torch.relu(self.image(x)), 4), 1)
        hidden = self.hidden(flat)
        return hidden + flat.sum(1, keepdim=True) if self.sums_up else hidden


class Shuffler(nn.Module):
    """A join and a shuffle of channels, and a depthwise convolution, with pools between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.depthwise = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.last = nn.Sequential(nn.Conv2d(48, 20, 1), nn.Hardswish(), nn.AvgPool2d(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = functional.max_pool2d(self.first(x), 2)
        shuffled = functional.channel_shuffle(torch.cat([wide, self.depthwise(wide)], 1), 2)
        return self.last(shuffled).mean((2, 3), keepdim=True)


class Watcher(nn.Module):
    """Convolutions and pools of a volume."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(3, 16, (3, 5, 5), (1, 2, 2), (1, 2, 2)), nn.ReLU())
        self.body = nn.Sequential(nn.MaxPool3d(2), nn.Conv3d(16, 16, 3, padding=1))
        self.up = nn.ConvTranspose3d(16, 16, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.stem(x)
        return functional.adaptive_avg_pool3d(torch.relu(wide + self.up(self.body(wide))), 1)


ERRORS = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (Decoder, (2, 3, 16, 24)),
        (Listener, (1, 1, 403)),
        (Watcher, (1, 3, 4, 16, 16)),
        (Shuffler, (1, 3, 16, 24)),
    ],
)
def test_a_model_stays_in_blocks_from_its_input_to_its_pooled_output(
    build: Callable[[], nn.Module],
    shape: tuple[int, ...],
    dtype: torch.dtype,
    server: CandidateClient,
    tmp_path: Path,
) -> None:
    captured = capture_module(build().eval().to(dtype), torch.randn(shape).to(dtype))
    target = captured.upload.target.llvm
    module = schedule_rest(optimized(captured, make_context(tmp_path)).module, target)

    actual = run_compiled(server, module, target, captured.inputs, tmp_path)
    found, expected = (each.astype("float64") for each in (actual, captured.references[0]))
    np.testing.assert_allclose(found, expected, rtol=10 * ERRORS[dtype], atol=ERRORS[dtype])
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    assert not [name for name in names if "to_blocks" in name or "transform" in name]
    assert unclaimed_functions(module) == ()


@pytest.mark.parametrize(
    ("model", "copies"),
    [(Classifier(29), False), (Classifier(29, sums_up=True), True), (Classifier(2), True)],
    ids=["read by the layer", "read by a sum too", "few channels in a block"],
)
def test_a_linear_layer_reads_a_flattened_image_without_a_copy(
    model: nn.Module, copies: bool, server: CandidateClient, tmp_path: Path
) -> None:
    captured = capture_module(model, torch.randn(3, 3, 16, 16))
    target = captured.upload.target.llvm
    module = schedule_rest(optimized(captured, make_context(tmp_path)).module, target)

    actual = run_compiled(server, module, target, captured.inputs, tmp_path)
    np.testing.assert_allclose(actual, captured.references[0], rtol=1e-4, atol=1e-5)
    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    assert any("from_blocks" in name for name in names) is copies


def test_an_image_that_lies_channels_last_is_right(server: CandidateClient, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(5, 13, 3), nn.ReLU())
    image = torch.randn(2, 5, 8, 9).contiguous(memory_format=torch.channels_last)
    captured = capture_module(model, image)
    target = captured.upload.target.llvm
    module = schedule_rest(optimized(captured, make_context(tmp_path)).module, target)

    inputs = (np.ascontiguousarray(image.numpy()),)
    actual = run_compiled(server, module, target, inputs, tmp_path)
    np.testing.assert_allclose(actual, captured.references[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "sizes"), [(op.nn.conv1d, (37,)), (op.nn.conv2d, (3, 13)), (op.nn.conv2d_transpose, (5, 5))]
)
def test_a_batch_of_dynamic_size_is_right(
    operator: Callable[..., relax.Expr], sizes: tuple[int, ...], server: CandidateClient, tmp_path: Path
) -> None:
    weights = relax.const(numbers((16, 16, *(3 for _ in sizes)), "float32", 1))
    target = target_of("x86-64-v3")
    data = numbers((3, 16, *sizes), "float32", 0)
    known = main_of(lambda x: operator(x, weights), data)
    opened = main_of_open_batch(lambda x: operator(x, weights), 16, sizes)

    actual, expected = (
        run_compiled(server, scheduled(module, target), target, (data,), tmp_path)
        for module in (opened, known)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    assert unclaimed_functions(scheduled(opened, target)) == ()


def main_of_open_batch(
    build: Callable[[relax.Expr], relax.Expr], channels: int, sizes: tuple[int, ...]
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    shape = (tvm.tirx.Var("n", "int64"), channels, *sizes)
    variable = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [variable]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(build(variable)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("mcpu", ["x86-64-v4", "znver4"])
def test_transposed_convolutions_build_for_other_processors(mcpu: str) -> None:
    weights = relax.const(np.ones((20, 12, 3, 3), "float32"))
    target = target_of(mcpu)
    module = main_of(
        lambda x: op.nn.conv2d_transpose(x, weights, strides=2), np.ones((1, 20, 5, 5), "float32")
    )

    scheduled_module = scheduled(module, target)
    assert unclaimed_functions(scheduled_module) == ()
    assert "<16 x float>" in source_of(tvm.compile(scheduled_module, target).mod)


@pytest.mark.parametrize(
    ("phases", "phase", "taps"),
    [
        (Phases(2, 1, 1, 8, 4), 0, (1, 3)),
        (Phases(2, 1, 1, 8, 4), 1, (0, 2)),
        (Phases(2, 1, 0, 7, 3), 1, (1,)),
        (Phases(3, 2, 1, 9, 5), 0, (2,)),
        (Phases(2, 2, 0, 9, 3), 0, (0, 1, 2)),
        (Phases(2, 2, 0, 9, 3), 1, ()),
        (Phases(3, 1, 0, 9, 1), 2, ()),
    ],
)
def test_a_phase_knows_the_taps_that_meet_it(phases: Phases, phase: int, taps: tuple[int, ...]) -> None:
    number = tvm.tirx.IntImm("int64", phase)
    first, count = (int(Analyzer().simplify(of(number))) for of in (phases.first_tap, phases.count))

    assert tuple(first + turn * phases.step for turn in range(count)) == taps


@pytest.mark.parametrize(
    ("blocks", "output", "expected"), [(8, 112, (2, 6)), (32, 16, (1, 8)), (1, 64, (1, 11)), (4, 1, (4, 1))]
)
def test_the_tile_of_a_phase_covers_its_columns(blocks: int, output: int, expected: tuple[int, int]) -> None:
    machine = Machine(vector_bits=256, registers=16, threads=2)
    tile = choose_tile(blocks, Phases(2, 1, 0, output, 2), machine)

    assert (tile.blocks, tile.columns) == expected
