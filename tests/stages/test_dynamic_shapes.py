"""Dynamic sizes of a `.pt2` stay dynamic from capture to the library, in every family."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_samples import capture_file
from family_samples import scheduled, target_of
from stage_samples import Function, compile_and_verify, make_context
from torch import nn

from bessemer.contract.base import now
from bessemer.contract.problem import ErrorCode
from bessemer.contract.stage import Stage
from worker.candidates.client import CandidateClient, LibraryCrashedError
from worker.compiler.codegen.executable import build_library
from worker.compiler.pipeline.translate import translate
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.values import Captured, StageContext
from worker.errors import JobError
from worker.job.compilation import _verified_at
from worker.package.document import make_report
from worker.tensors import as_array

TARGET = "x86-64-v3"
BATCH = torch.export.Dim("batch", min=1, max=64)
LENGTH = torch.export.Dim("length", min=1, max=2048)


def saved(path: Path, module: nn.Module, inputs: tuple[torch.Tensor, ...], dims: Any) -> Path:
    with path.open("wb") as file, torch.no_grad():
        program = torch.export.export(module.eval(), inputs, dynamic_shapes=dims, strict=False)
        torch.export.save(program, file)
    return path


def two(model: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"sum": model.linear(x) + y, "twice": torch.cat([x, x], 1)}


def test_capture_describes_dynamic_sizes_and_runs_the_original_at_several(tmp_path: Path) -> None:
    module = Function(two, linear=nn.Linear(8, 8))
    dims = ({0: BATCH, 1: LENGTH}, {0: BATCH})
    inputs = torch.randn(4, 6, 8), torch.randn(4, 1, 8)
    captured = capture_file(saved(tmp_path / "model", module, inputs, dims))
    dynamic = captured.dynamic
    assert list(map(str, dynamic.dimensions)) == ["x_0 from 1 to 64", "x_1 from 1 to 2048"]
    shown = [(axis.tensor, axis.axis, str(axis)) for axis in (*dynamic.inputs, *dynamic.outputs)]
    assert ("y", 0, "x_0") in shown
    assert ("twice", 1, "2*x_1") in shown
    shapes = [sample.references[1].shape for sample in captured.samples]
    assert shapes == [(1, 2, 8), (3, 6, 8), (11, 34, 8)]


def test_named_inputs_fix_all_sizes(tmp_path: Path) -> None:
    module = Function(lambda model, x: model.linear(x), linear=nn.Linear(8, 4))
    path = saved(tmp_path / "model", module, (torch.randn(4, 8),), ({0: BATCH},))
    captured = capture_file(path, "x=7x8")
    assert captured.output_specs[0].shape == (7, 4)
    assert not captured.dynamic.dimensions
    assert not captured.samples


def test_sizes_that_the_importer_cannot_keep_dynamic_are_reported(tmp_path: Path) -> None:
    module = Function(lambda model, x: nn.functional.interpolate(x, scale_factor=2.0, mode="bicubic"))
    dims = ({0: BATCH, 2: LENGTH},)
    captured = capture_file(saved(tmp_path / "model", module, (torch.randn(2, 3, 6, 6),), dims))
    with pytest.raises(JobError) as caught:
        translate(captured, make_context(tmp_path))
    assert caught.value.code is ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED
    assert "x_0 from 1 to 64" in caught.value.detail
    assert caught.value.detail.endswith("resizing with dynamic sizes (x_2, 6). Fix 'x_2'")
    assert caught.value.places[0].operator == "aten.upsample_bicubic2d.vec"


@dataclass(frozen=True)
class Case:
    """A model, its example inputs, its dynamic axes, and the functions that no family claims."""

    module: nn.Module
    example: tuple[int, ...]
    axes: dict[int, Any]
    others: tuple[tuple[int, ...], ...]
    unclaimed: tuple[str, ...] = ()


def self_attention(_: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.transpose(1, 2) * 0.3, -1) @ x


CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 24, 1), nn.Conv2d(24, 24, 3, groups=6),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(),
)  # fmt: skip
MIXED = {0: BATCH, 1: LENGTH}
HEIGHT = torch.export.Dim("height", min=9, max=400)
WIDTH = torch.export.Dim("width", min=9, max=400)
SPAN = torch.export.Dim("span", min=2, max=14)


class Images(nn.Module):
    """Convolutions and pools of every kind, with and without borders, residuals and joins."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.BatchNorm2d(32), nn.GELU())
        self.pool = nn.MaxPool2d(3, 1, 1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=32)
        self.grouped = nn.Conv2d(32, 48, 3, padding=1, groups=4)
        self.wide = nn.Conv2d(80, 33, (1, 3))
        self.average = nn.AvgPool2d(2, 1, 1, count_include_pad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pool(self.stem(x))
        y = (y + self.depthwise(y)).relu()
        return self.average(self.wide(torch.cat([self.grouped(y), y], 1))).mean((2, 3))


class Batches(nn.Module):
    """Convolutions of fixed images that read only the same image, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.large = nn.Conv2d(64, 64, 3, padding=1)
        self.small = nn.Sequential(nn.Conv2d(64, 72, 1), nn.ReLU(), nn.Conv2d(72, 72, 3, groups=72))
        self.flipped, self.numbered = nn.Conv2d(72, 64, 1), nn.Conv2d(64, 7, (2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x)
        y = self.small((y + self.large(y)).relu())
        y = self.flipped(y) + self.flipped(y).flip(0)
        return self.numbered(y) * torch.arange(x.shape[0])[:, None, None, None]


class Odd(nn.Module):
    """Images of an odd number of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Conv2d(72, 72, 3, padding=1)
        self.grouped = nn.Conv2d(72, 24, 3, padding=1, groups=4)
        self.transposed = nn.ConvTranspose2d(24, 24, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.transposed(self.grouped(self.dense(x).relu()))


class Encoded(nn.Module):
    """Pools and enlarges images again, so that sizes must be multiples of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 16, 3, padding=1)
        self.third, self.last = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(40, 5, 1)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).relu()
        z = self.third(self.pool(self.second(self.pool(y)).relu()))
        return self.last(torch.cat([self.up(z), y], 1))


QUARTERS = {
    2: 4 * torch.export.Dim("rows_of_4", min=2, max=64),
    3: 4 * torch.export.Dim("cols_of_4", min=2, max=64),
}


def resized(_: Any, x: torch.Tensor) -> torch.Tensor:
    larger = nn.functional.interpolate(x, scale_factor=2.0)
    smooth = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
    aligned = nn.functional.interpolate(x, size=larger.shape[2:], mode="bilinear", align_corners=True)
    return larger + smooth * aligned


def selected(_: Any, x: torch.Tensor) -> torch.Tensor:
    return x[:, -1].relu() + x[:, x.shape[1] - 1] * x[-1, 0]


def written(_: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:-1] = 0.5
    y[:, ::3] += x[:, ::3]
    return y


def written_from_end(_: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, -10:] = x[:, -10:] * 2
    return y


def pooled(_: Any, x: torch.Tensor) -> torch.Tensor:
    """torch reads the result of this pool by strides."""
    return nn.functional.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), 1)


RESIZED_BATCH = nn.Sequential(
    nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=1.5, mode="bilinear"), nn.Upsample(size=(13, 17)),
    nn.Upsample(size=(9, 8), mode="bilinear", align_corners=True),
    nn.Upsample(size=(9, 8), mode="nearest-exact"),
    nn.Upsample(size=(5, 5), mode="bicubic", align_corners=True), nn.Upsample(scale_factor=2, mode="bicubic"),
)  # fmt: skip


def sliced(_: Any, x: torch.Tensor) -> torch.Tensor:
    length = x.shape[1]
    parts = [x[:, -3:], x[:, length - 2 :], x[:, -(length - 2) :], x[:, 1:-1], x[:, ::2], x[:, -1:].relu()]
    return torch.cat([*parts, x.transpose(1, 2)[..., : length - 2].transpose(1, 2)], 1)


def indexed(_: Any, x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1])
    return x[:, places, places % 4 - 4] + x[0, places[:, None], places[None, :] % 4].sum(1)


def within_span(_: Any, x: torch.Tensor) -> torch.Tensor:
    """A slice between numbers that a tensor holds, as in the relative positions of DeBERTa."""
    span = torch.tensor(x.shape[1])
    return x[..., 15 - span : 15 + span] * 2


CASES = {
    "linear-rows": Case(
        nn.Sequential(nn.Linear(600, 33), nn.GELU(), nn.Linear(33, 5)),
        (4, 600),
        {0: BATCH},
        ((1, 600), (3, 600), (7, 600), (64, 600)),
    ),
    "deep-linear-rows": Case(
        nn.Sequential(nn.Linear(2100, 64), nn.GELU()),
        (4, 2100),
        {0: BATCH},
        ((1, 2100), (7, 2100), (64, 2100), (200, 2100)),
    ),
    "multiples-of-rows": Case(
        Function(
            lambda model, x: model.layers(x.flatten(0, 1)) + x.flatten(0, 1),
            layers=nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64)),
        ),
        (2, 4, 36, 64),
        {0: BATCH},
        ((1, 4, 36, 64), (5, 4, 36, 64)),
    ),
    "encoder-attention": Case(
        Function(self_attention),
        (2, 6, 20),
        MIXED,
        ((1, 1, 20), (3, 5, 20), (2, 64, 20), (1, 197, 20)),
    ),
    "causal-attention": Case(
        Function(
            lambda model, x: torch.nn.functional.scaled_dot_product_attention(
                *(x.unflatten(-1, (2, 8)).transpose(1, 2),) * 3, is_causal=True
            )
        ),
        (2, 6, 16),
        MIXED,
        ((1, 1, 16), (3, 37, 16), (1, 515, 16)),
    ),
    "masked-attention": Case(
        Function(
            lambda model, x: torch.nn.functional.scaled_dot_product_attention(
                *(x[:, None],) * 3, attn_mask=(x.sum(-1) > 0.5)[:, None, None, :]
            )
        ),
        (2, 6, 13),
        MIXED,
        ((1, 3, 13), (3, 37, 13), (1, 300, 13)),
    ),
    "norm-and-linear": Case(
        nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 40), nn.Tanh()),
        (2, 6, 24),
        MIXED,
        ((1, 1, 24), (7, 5, 24), (1, 2048, 24)),
    ),
    "group-norm": Case(nn.GroupNorm(2, 6), (2, 6, 9), {0: BATCH, 2: LENGTH}, ((1, 6, 1), (3, 6, 517))),
    "reductions": Case(
        Function(lambda model, x: torch.softmax(x, 1) * x.amax(1, keepdim=True) + x.mean(1, keepdim=True)),
        (3, 6),
        MIXED,
        ((1, 1), (7, 5), (2, 197), (64, 2048)),
    ),
    "convolutions": Case(CONVOLUTIONS, (2, 3, 22, 26), {0: BATCH}, ((1, 3, 22, 26), (7, 3, 22, 26))),
    "batches": Case(
        Batches(), (2, 3, 34, 30), {0: BATCH}, ((1, 3, 34, 30), (5, 3, 34, 30))
    ),
    "odd-batches": Case(
        Odd(), (2, 72, 7, 7), {0: BATCH}, ((1, 72, 7, 7), (5, 72, 7, 7))
    ),
    "images": Case(
        Images(),
        (2, 3, 64, 64),
        {0: BATCH, 2: HEIGHT, 3: WIDTH},
        ((1, 3, 9, 9), (2, 3, 10, 400), (3, 3, 63, 65), (1, 3, 224, 31)),
    ),
    "multiples": Case(Encoded(), (2, 3, 24, 32), QUARTERS, ((2, 3, 8, 12), (2, 3, 100, 60))),
    "multiple-and-more": Case(
        Function(lambda _, x: x.relu() * 2),
        (2, 13),
        {1: 3 * torch.export.Dim("thirds", min=1, max=64) + 1},
        ((2, 4), (2, 31)),
    ),
    "heights": Case(
        nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        (1, 16, 30, 12),
        {2: HEIGHT},
        ((1, 16, 9, 12), (1, 16, 100, 12)),
    ),
    "sequences": Case(
        nn.Sequential(nn.Conv1d(2, 40, 7, stride=3), nn.GELU(), nn.Conv1d(40, 64, 3, padding=1), nn.SiLU()),
        (2, 2, 100),
        {0: BATCH, 2: torch.export.Dim("samples", min=20, max=4000)},
        ((1, 2, 20), (2, 2, 61), (1, 2, 4000)),
    ),
    "resized": Case(
        Function(resized), (1, 3, 12, 16), {2: HEIGHT, 3: WIDTH}, ((1, 3, 9, 9), (1, 3, 33, 70))
    ),
    "slices": Case(
        Function(sliced), (2, 8, 30), {1: torch.export.Dim("rows", min=4, max=28)}, ((2, 4, 30), (2, 27, 30))
    ),
    "slices-before-the-start": Case(
        Function(written_from_end),
        (2, 8, 30),
        {1: torch.export.Dim("few_rows", min=4, max=9)},
        ((2, 4, 30), (2, 9, 30)),
    ),
    "selected": Case(Function(selected), (4, 6, 8), MIXED, ((2, 2, 8), (5, 33, 8))),
    "slices-between-numbers": Case(
        Function(within_span), (2, 8, 30), {1: SPAN}, ((2, 2, 30), (2, 14, 30))
    ),
    "slices-written": Case(
        Function(written), (2, 8, 30), {1: torch.export.Dim("rows", min=4, max=28)}, ((2, 4, 30), (2, 27, 30))
    ),
    "resized-batch": Case(RESIZED_BATCH, (2, 3, 10, 10), {0: BATCH}, ((1, 3, 10, 10), (5, 3, 10, 10))),
    "instance-norm": Case(nn.InstanceNorm2d(8), (2, 8, 6, 7), {0: BATCH}, ((1, 8, 6, 7), (5, 8, 6, 7))),
    "pool-by-strides": Case(Function(pooled), (2, 6, 7, 24), {0: BATCH}, ((1, 6, 7, 24), (5, 6, 7, 24))),
    "moments": Case(
        Function(lambda _, x: x.std(0) + x.var(1, keepdim=True, correction=0)),
        (3, 6),
        {0: torch.export.Dim("several", min=2, max=64)},
        ((2, 6), (50, 6)),
        ("fused_subtract_multiply_sum", "mean"),
    ),
    "indices": Case(Function(indexed), (2, 6, 4), MIXED, ((1, 2, 4), (5, 33, 4))),
    "movement": Case(
        Function(lambda model, x: torch.cat([x.transpose(1, 2).relu(), x.transpose(1, 2)[:, 2:]], 1)),
        (2, 6, 9),
        MIXED,
        ((1, 1, 9), (3, 33, 9)),
    ),
}  # fmt: skip


def compiled(captured: Captured, folder: Path, mcpu: str = TARGET) -> tuple[Path, tuple[str, ...], set[str]]:
    """The library, the names of functions without a family, and all names."""
    target = target_of(mcpu)
    module = scheduled(translate(captured, make_context(folder)).module, target)
    library = folder / "model.so"
    build_library(module, target, library, folder / "objects")
    return library, unclaimed_functions(module), {str(name.name_hint) for name in module.get_global_vars()}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_families_compute_functions_of_dynamic_sizes(
    server: CandidateClient, tmp_path: Path, name: str
) -> None:
    torch.manual_seed(1)
    case = CASES[name]
    path = saved(tmp_path / "model", case.module, (torch.randn(case.example),), (case.axes,))
    library, unclaimed, kinds = compiled(capture_file(path), tmp_path)
    assert unclaimed == case.unclaimed
    assert ("attention" in kinds) is ("attention" in name)
    assert any("winograd" in kind for kind in kinds) is (name == "batches")
    with server.open_library(library, threads=2) as loaded:
        for shape in (case.example, *case.others):
            x = torch.randn(shape)
            with torch.inference_mode():
                expected = as_array(case.module(x))
            np.testing.assert_allclose(loaded.run((as_array(x),))[0], expected, rtol=2e-5, atol=2e-5)


def test_a_tile_of_a_convolution_of_dynamic_sizes_may_be_one_column(
    server: CandidateClient, tmp_path: Path
) -> None:
    """x86-64-v2 has no registers for two columns of five blocks."""
    module, sides = nn.Conv2d(3, 20, 3, padding=1), {2: BATCH, 3: LENGTH}
    path = saved(tmp_path / "model", module, (torch.randn(2, 3, 9, 11),), (sides,))
    library, unclaimed, _ = compiled(capture_file(path), tmp_path, "x86-64-v2")
    assert unclaimed == ()
    with server.open_library(library, threads=2) as loaded:
        for rows, columns in ((1, 1), (2, 3), (9, 40)):
            x = torch.randn(2, 3, rows, columns)
            with torch.inference_mode():
                expected = as_array(module(x))
            np.testing.assert_allclose(loaded.run((as_array(x),))[0], expected, rtol=2e-5, atol=2e-5)


def test_a_slice_begins_at_a_dynamic_place_before_the_end(server: CandidateClient, tmp_path: Path) -> None:
    module = Function(lambda _, x: x[:, 2 - x.shape[1] :] * 2)
    dims = ({0: BATCH, 1: torch.export.Dim("at_least_4", min=4, max=64)},)
    path = saved(tmp_path / "model", module, (torch.randn(2, 9, 5),), dims)
    library, *_ = compiled(capture_file(path), tmp_path)
    with server.open_library(library, threads=2) as loaded:
        for size in (4, 5, 9, 64):
            x = torch.randn(3, size, 5)
            np.testing.assert_array_equal(loaded.run((as_array(x),))[0], as_array(module(x)))


@pytest.mark.parametrize("sides", [(33, 33), (32, 36)])
def test_sizes_that_are_no_multiples_or_differ_end_the_run(
    server: CandidateClient, tmp_path: Path, sides: tuple[int, int]
) -> None:
    quarters = 4 * torch.export.Dim("quarters", min=2, max=64)
    dims = ({2: quarters, 3: quarters},)
    path = saved(tmp_path / "model", nn.MaxPool2d(4), (torch.randn(1, 3, 32, 32),), dims)
    library, *_ = compiled(capture_file(path), tmp_path)
    with server.open_library(library, threads=2) as loaded:
        with pytest.raises(LibraryCrashedError, match="mismatch"):
            loaded.run((np.zeros((1, 3, *sides), np.float32),))
        assert loaded.run((np.zeros((1, 3, 36, 36), np.float32),))[0].shape == (1, 3, 9, 9)


def test_the_report_has_the_sizes_at_which_outputs_were_compared(
    context: StageContext, tmp_path: Path
) -> None:
    module = Function(lambda model, x, y: model.linear(x) + y, linear=nn.Linear(8, 8))
    inputs = torch.randn(4, 8), torch.randn(8)
    captured = capture_file(saved(tmp_path / "model", module, inputs, ({0: BATCH}, None)))
    verified = compile_and_verify(captured, context)
    report = make_report(verified, context, now(), Stage.VERIFY)
    assert list(map(str, report.verified_sizes)) == [
        f"at x_0={size}: x={size}x8:float32" for size in (4, 1, 3, 11)
    ]
    assert _verified_at(captured, verified) == tuple({"x_0": size} for size in (4, 1, 3, 11))
    assert [one.shape for one in report.comparisons] == [(4, 8), (1, 8), (3, 8), (11, 8)]
    assert make_report(verified.built, context, now(), Stage.BUILD).verified_sizes == ()


NONE = torch.export.Dim("none", min=0, max=64)
EMPTY = {
    "linear": nn.Linear(20, 33),
    "softmax": nn.Softmax(1),
    "sum": Function(lambda _, x: x.sum(0)),
    "exponential": Function(lambda _, x: x.exp()),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", EMPTY)
def test_a_dynamic_size_may_be_zero(server: CandidateClient, tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "model", EMPTY[name], (torch.randn(5, 20),), ({0: NONE},))
    library, *_ = compiled(capture_file(path), tmp_path)
    with server.open_library(library, threads=2) as loaded:
        for rows in (0, 1, 5, 64):
            x = torch.randn(rows, 20)
            with torch.inference_mode():
                expected = as_array(EMPTY[name](x))
            np.testing.assert_allclose(loaded.run((as_array(x),))[0], expected, rtol=2e-5, atol=2e-5)


STATIC = {
    "products": (
        nn.Sequential(nn.Linear(40, 37), nn.ReLU()),
        [(1, 40), (2, 40), (7, 40), (16, 40), (64, 40), (64, 5, 40), (1, 2048, 40)],
    ),
    "rows": (nn.Softmax(-1), [(7, 1), (2, 5), (1, 64), (64, 197), (3, 2048)]),
}


@pytest.mark.parametrize("name", STATIC)
def test_families_compute_functions_of_odd_fixed_sizes(
    server: CandidateClient, tmp_path: Path, name: str
) -> None:
    """One model of one input per shape."""
    module, shapes = STATIC[name]

    class Each(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(self.module(x) for x in inputs)

    inputs = tuple(torch.randn(shape) for shape in shapes)
    path = saved(tmp_path / "model", Each(), inputs, None)
    library, unclaimed, _ = compiled(capture_file(path), tmp_path)
    assert unclaimed == ()
    with server.open_library(library, threads=2) as loaded:
        outputs = loaded.run(tuple(map(as_array, inputs)))
    for x, output in zip(inputs, outputs, strict=True):
        with torch.inference_mode():
            np.testing.assert_allclose(output, as_array(module(x)), rtol=2e-5, atol=2e-5)
