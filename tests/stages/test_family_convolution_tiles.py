"""Tiles that the convolutional families choose, and their code for other processors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from family_samples import (
    Array,
    main_of,
    numbers,
    run_compiled,
    scheduled,
    source_of,
    spills,
    target_of,
)
from stage_samples import TARGET, capture_module, make_context, optimized
from torch import nn
from torch.nn import functional
from tvm import relax, te

from bessemer.contract.triple import LINUX_X86_64
from worker.candidates.client import CandidateClient
from worker.compiler.codegen.executable import compile_module
from worker.compiler.codegen.generate import generate_code
from worker.compiler.layout.blocked.compute import convolution
from worker.compiler.layout.blocked.weight_packing import (
    Groups,
    merge,
    merged_groups,
    pack_dense,
    pack_vector,
)
from worker.compiler.layout.images import Window
from worker.compiler.schedules.default import default_schedule, schedule_rest
from worker.compiler.schedules.families.convolution.conv2d import (
    ConvolutionShape,
    convolution_plans,
    rank_convolution_tiles,
)
from worker.compiler.schedules.families.convolution.depthwise import choose_band, choose_columns
from worker.compiler.schedules.processors import Machine, machine_of
from worker.compiler.target import compile_target, host_instruction_sets

NEEDS_AVX512 = pytest.mark.skipif(
    "avx512f" not in host_instruction_sets(LINUX_X86_64), reason="the processor has no AVX-512"
)
AVX2 = Machine(vector_bits=256, registers=16, threads=2)
AVX512 = Machine(vector_bits=512, registers=32, threads=2)
ZEN4 = replace(AVX512, fma_ports=1, loads_per_cycle=1, l2_bytes=1 << 20, hides_loops=True)
NEON = Machine(vector_bits=128, registers=32, threads=2, lane_factors=True)
IN_ORDER = replace(NEON, fma_ports=1, loads_per_cycle=0.5)


def shape(blocks: int, rows: int, columns: int, **fields: Any) -> ConvolutionShape:
    return ConvolutionShape(
        batch=1,
        groups=1,
        blocks=blocks,
        rows=rows,
        columns=columns,
        **{"taps": 576, "contiguous": False, **fields},
    )


@pytest.mark.parametrize(
    ("machine", "asked", "expected"),
    [
        (AVX2, shape(8, 56, 56), (2, 6, 1)),
        (AVX2, shape(16, 28, 28), (2, 6, 1)),
        (AVX2, shape(64, 7, 7), (2, 5, 7)),
        (AVX2, shape(64, 7, 7, contiguous=True), (2, 5, 7)),
        (AVX2, shape(32, 14, 14, contiguous=True), (2, 6, 14)),
        (AVX2, shape(3, 56, 56), (3, 4, 1)),
        (AVX2, shape(1, 1, 13), (1, 13, 1)),
        (AVX2, shape(4, 1, 1), (2, 1, 1)),
        (AVX2, shape(8, 112, 112, taps=147, is_plain=True), (2, 4, 1)),
        (AVX512, shape(4, 56, 56), (2, 14, 1)),
        (AVX512, shape(32, 7, 7), (4, 5, 7)),
        (AVX512, shape(128, 7, 7, taps=512, contiguous=True), (2, 14, 7)),
        (AVX512, shape(64, 14, 14, taps=256, contiguous=True), (2, 14, 14)),
        (ZEN4, shape(128, 7, 7, taps=512, contiguous=True), (4, 5, 7)),
        (ZEN4, shape(64, 14, 14, taps=256, contiguous=True), (4, 6, 14)),
        (NEON, shape(16, 56, 56), (4, 4, 1)),
        (IN_ORDER, shape(64, 7, 7), (4, 5, 7)),
    ],
)
def test_a_convolutions_tile_fits_the_registers_and_hides_latency(
    machine: Machine, asked: ConvolutionShape, expected: tuple[int, int, int]
) -> None:
    tile = rank_convolution_tiles(asked, machine)[0]

    assert (tile.blocks, tile.columns, tile.joined) == expected


NEAR, FAR = (2 << 20) // 4, (2 << 20) // 4 + 1
"""Elements of an image of twice L2, and of a larger one."""


@pytest.mark.parametrize(
    ("machine", "taps", "channels", "image", "unrolls"),
    [
        (AVX512, 576, 4, NEAR, True),
        (AVX512, 256, 16, NEAR, False),
        (ZEN4, 576, 4, NEAR, False),
        (ZEN4, 576, 4, FAR, False),
        (ZEN4, 512, 32, NEAR, False),
        (ZEN4, 512, 32, FAR, True),
        (ZEN4, 64, 4, FAR, False),
        (replace(ZEN4, hides_loops=False), 512, 32, NEAR, True),
    ],
)
def test_lanes_are_unrolled_where_loops_take_time_or_loads_begin_too_late(
    machine: Machine, taps: int, channels: int, image: int, unrolls: bool
) -> None:
    asked = shape(32, 7, 7, taps=taps, channels=channels, image=image)
    assert convolution_plans(asked, machine)[0].unrolls is unrolls


def test_all_ranked_tiles_fit_and_are_different() -> None:
    tiles = rank_convolution_tiles(shape(8, 14, 14), AVX2)

    assert len(set(tiles)) == len(tiles) > 20
    assert all(tile.blocks * tile.columns + tile.blocks < AVX2.registers for tile in tiles)


def test_rows_stay_apart_where_threads_would_idle() -> None:
    few = shape(2, 14, 14, contiguous=True)

    assert rank_convolution_tiles(few, replace(AVX2, threads=1))[0].joined == 14
    assert rank_convolution_tiles(few, replace(AVX2, threads=16))[0].joined == 1
    assert rank_convolution_tiles(replace(few, joinable=False), replace(AVX2, threads=1))[0].joined == 1


@pytest.mark.parametrize(
    ("channels", "taps", "parts"),
    [(8, 576, 1), (32, 2304, 1), (64, 4608, 64), (256, 2048, 1), (64, 64 * 8 * 25, 64)],
)
def test_weights_that_outgrow_the_cache_are_read_in_parts(channels: int, taps: int, parts: int) -> None:
    asked = shape(64, 7, 7, channels=channels, taps=taps)
    tile = rank_convolution_tiles(asked, replace(AVX2, loads_per_cycle=1.5))[0]

    assert tile.parts == parts
    assert channels % tile.parts == 0


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
        capture_module(model, torch.randn(2, 3, 37, 41), target=target), make_context(folder)
    ).module
    return schedule_rest(module, compile_target(target).llvm)


def test_no_layout_changes_between_the_image_and_the_pooled_features(tmp_path: Path) -> None:
    module = compile_for("x86-64-v3", Bottleneck(channels=24, groups=4), tmp_path)

    names = [str(variable.name_hint) for variable in module.get_global_vars()]
    assert not [name for name in names if "blocks" in name or "transform" in name]


@pytest.mark.sampled
@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v4", "znver4"])
def test_the_families_build_for_other_processors(mcpu: str, tmp_path: Path) -> None:
    module = compile_for(mcpu, Bottleneck(channels=20, groups=5), tmp_path)

    tvm.compile(module, compile_target(TARGET.model_copy(update={"mcpu": mcpu})).llvm)
    assert module.script().count("T.unroll") > 10


@pytest.mark.parametrize("columns", [56, 54, 27])
@pytest.mark.parametrize(
    ("mcpu", "triple", "stack"),
    [
        ("x86-64-v3", LINUX_X86_64, r"ymm.*\(%rsp|\(%rsp.*ymm"),
        ("x86-64-v4", LINUX_X86_64, r"zmm.*\(%rsp|\(%rsp.*zmm"),
        ("neoverse-n1", "aarch64-unknown-linux-gnu", r"\bq\d+.*\[sp"),
    ],
)
def test_the_inner_loops_keep_all_sums_in_registers_in_a_shorter_last_tile_too(
    mcpu: str, triple: str, stack: str, columns: int
) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": 2})
    lanes = machine_of(target).lanes(32)
    data = te.placeholder((1, 64 // lanes, 56, columns, lanes), "float32")
    weights = te.placeholder((64 // lanes, 64 // lanes, 3, 3, lanes, lanes), "float32")
    once, image = (1, 1), (56, columns)
    window = Window(image, (3, 3), strides=once, dilation=once, before=once, after=once, output=image)
    output = convolution(window, groups=1)(data, weights)
    function = te.create_prim_func([data, weights, output], index_dtype_override="int64")

    code = generate_code(tvm.IRModule({"main": default_schedule(function, target)}), target)

    assert not spills(source_of(code, "s"), stack)


@pytest.mark.parametrize(
    ("inputs", "size", "outputs", "kernel", "prefetches"),
    [
        pytest.param(512, 7, 512, 3, True, id="weights of many channels on few pixels"),
        pytest.param(512, 7, 512, 1, True, id="few taps"),
        pytest.param(64, 7, 64, 1, False, id="small weights stay in a cache"),
        pytest.param(256, 28, 512, 1, False, id="with many pixels the wait for weights does not count"),
    ],
)
@pytest.mark.parametrize("mcpu", ["skylake", "sapphirerapids"])
def test_weights_that_come_from_memory_are_prefetched(
    mcpu: str, inputs: int, size: int, outputs: int, kernel: int, prefetches: bool
) -> None:
    target = target_of(mcpu)
    module = main_of(
        lambda x: convolved(x, inputs, outputs, kernel), np.ones((1, inputs, size, size), "float32")
    )

    code = compile_module(scheduled(module, target), target).mod

    assert ("prefetcht1" in source_of(code, "s")) is prefetches


@pytest.mark.parametrize(
    ("inputs", "image", "outputs", "kernel"),
    [
        pytest.param(40, (7, 7), 300, 5, id="rows with a rest of channels"),
        pytest.param(300, (5, 6), 131, 1, id="joined rows with a shorter last tile"),
        pytest.param(640, (4, 4), 64, 5, id="input channels in parts"),
    ],
)
@pytest.mark.parametrize("mcpu", ["x86-64-v3", pytest.param("x86-64-v4", marks=NEEDS_AVX512)])
def test_a_prefetching_convolution_agrees_with_torch(
    server: CandidateClient,
    tmp_path: Path,
    mcpu: str,
    inputs: int,
    image: tuple[int, int],
    outputs: int,
    kernel: int,
) -> None:
    data = numbers(2, inputs, *image)
    target = target_of(mcpu)

    module = scheduled(main_of(lambda x: convolved(x, inputs, outputs, kernel), data), target)
    computed = run_compiled(server, module, target, (data,), tmp_path)

    weights = torch.from_numpy(weights_of(inputs, outputs, kernel).astype("float64"))
    exact = functional.conv2d(torch.from_numpy(data.astype("float64")), weights, padding=kernel // 2).numpy()
    assert "prefetcht1" in source_of(compile_module(module, target).mod, "s")
    np.testing.assert_allclose(computed, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def weights_of(inputs: int, outputs: int, kernel: int) -> Array:
    return numbers(outputs, inputs, kernel, kernel, seed=1)


def convolved(x: relax.Expr, inputs: int, outputs: int, kernel: int) -> relax.Expr:
    weights = relax.const(weights_of(inputs, outputs, kernel))
    return relax.op.nn.conv2d(x, weights, padding=(kernel // 2,) * 4)
