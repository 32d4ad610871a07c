"""Which tiles the convolutional families choose, and their code for processors that are elsewhere."""

from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from stage_samples import TARGET, capture_module, make_workshop, optimized
from torch import nn

from worker.layout.convolution_weights import Groups, merge, merged_groups, pack_dense, pack_vector
from worker.schedules.default import schedule_rest
from worker.schedules.families.conv2d import ConvolutionTile, choose_convolution_tile
from worker.schedules.families.depthwise import choose_band, choose_columns
from worker.schedules.machine import Machine
from worker.targets import tvm_target

AVX2 = Machine(vector_bits=256, registers=16, threads=2)
AVX512 = Machine(vector_bits=512, registers=32, threads=2)


@pytest.mark.parametrize(
    ("machine", "blocks", "columns", "expected"),
    [
        (AVX2, 8, 56, (2, 4)),
        (AVX2, 16, 28, (2, 6)),
        (AVX2, 64, 7, (2, 4)),
        (AVX2, 120, 7, (3, 4)),
        (AVX2, 3, 56, (3, 4)),
        (AVX2, 1, 13, (1, 13)),
        (AVX2, 4, 1, (4, 1)),
        (AVX512, 4, 56, (4, 6)),
        (AVX512, 32, 7, (4, 5)),
    ],
)
def test_a_convolutions_tile_fits_the_registers_and_hides_latency(
    machine: Machine, blocks: int, columns: int, expected: tuple[int, int]
) -> None:
    assert choose_convolution_tile(blocks, columns, machine) == ConvolutionTile(*expected)


@pytest.mark.parametrize(
    ("columns", "taps", "expected"),
    [(112, 9, 8), (7, 9, 7), (56, 9, 8), (14, 25, 5), (13, 9, 8), (1, 9, 1), (56, 49, 2), (9, 400, 1)],
)
def test_a_window_tile_unrolls_a_bounded_number_of_taps(columns: int, taps: int, expected: int) -> None:
    assert choose_columns(columns, taps) == expected


@pytest.mark.parametrize(
    ("rows", "tasks", "threads", "expected"),
    [(112, 12, 2, 8), (112, 4, 2, 8), (7, 120, 2, 7), (28, 4, 16, 1), (56, 1, 1, 8), (13, 1, 64, 1)],
)
def test_bands_are_few_rows_and_enough_for_all_threads(
    rows: int, tasks: int, threads: int, expected: int
) -> None:
    assert choose_band(rows, tasks, threads) == expected


@pytest.mark.parametrize(
    ("outputs", "inputs", "groups", "blocked", "expected"),
    [
        (16, 16, 4, True, 1),
        (4, 4, 32, True, 2),
        (4, 4, 32, False, 2),
        (4, 3, 32, False, 2),
        (1, 2, 64, True, None),
        (5, 5, 3, True, 3),
        (64, 64, 1, True, 1),
    ],
)
def test_groups_are_merged_until_they_fill_vectors(
    outputs: int, inputs: int, groups: int, blocked: bool, expected: int | None
) -> None:
    assert merged_groups(Groups(groups, inputs, outputs), lanes=8, blocked_input=blocked) == expected


def test_merged_groups_keep_their_weights_apart() -> None:
    weights = np.arange(1, 9, dtype="float32").reshape(4, 2, 1, 1)

    merged = merge(weights, groups=4, merged=2)[:, :, 0, 0]

    assert merged.tolist() == [[1, 2, 0, 0], [0, 0, 3, 4], [5, 6, 0, 0], [0, 0, 7, 8]]


def test_packed_weights_are_filled_up_with_zeros() -> None:
    weights = np.ones((5, 3, 2, 2), "float32")

    assert pack_dense(weights, 4, blocked_input=False).shape == (2, 3, 2, 2, 4)
    blocked = pack_dense(weights, 4, blocked_input=True)
    assert blocked.shape == (2, 1, 2, 2, 4, 4)
    assert blocked.sum() == weights.sum()
    assert pack_vector(np.ones((1, 5, 1, 1)), 4).reshape(-1).tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


class Bottleneck(nn.Module):
    """Convolutions of every kind between a plain image and a linear layer."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        stem = nn.Conv2d(3, channels, 7, 2, padding=3)
        self.stem = nn.Sequential(stem, nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.depthwise = nn.Sequential(depthwise, nn.ReLU6())
        self.grouped = nn.Conv2d(channels, 40, 3, padding=1, groups=groups)
        self.project = nn.Conv2d(40, channels, 1)
        self.classes = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.project(self.grouped(self.depthwise(x))))
        return self.classes(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


def compile_for(mcpu: str, model: nn.Module, folder: Path) -> tvm.IRModule:
    target = TARGET.model_copy(update={"mcpu": mcpu})
    module = optimized(
        capture_module(model, torch.randn(2, 3, 37, 41), target=target), make_workshop(folder)
    ).module
    return schedule_rest(module, tvm_target(target))


def test_no_layout_changes_between_the_image_and_the_pooled_features(tmp_path: Path) -> None:
    module = compile_for("x86-64-v3", Bottleneck(channels=24, groups=4), tmp_path)

    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    assert not [name for name in names if "blocks" in name or "transform" in name]


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v4", "znver4"])
def test_the_families_build_for_other_processors(mcpu: str, tmp_path: Path) -> None:
    module = compile_for(mcpu, Bottleneck(channels=20, groups=5), tmp_path)

    tvm.compile(module, tvm_target(TARGET.model_copy(update={"mcpu": mcpu})))
    assert module.script().count("T.unroll") > 10
