"""Winograd's transforms are those of a convolution, and the processor's model chooses where they pay."""

from math import ceil

import numpy as np
import pytest

from worker.compiler.schedules.families.convolution.conv2d import ConvolutionShape
from worker.compiler.schedules.families.convolution.layers import Layer
from worker.compiler.schedules.families.convolution.winograd_plan import (
    WinogradShape,
    faster_by_winograd,
    winograd_plans,
)
from worker.compiler.schedules.families.convolution.winograd_points import (
    POINTS,
    TAPS,
    tile_of,
    transforms,
)
from worker.compiler.schedules.families.convolution.winograd_transforms import twins
from worker.compiler.schedules.processors import Machine, machine_from


def machine(name: str, threads: int = 2) -> Machine:
    features = {"sapphirerapids": "avx512f", "znver3": "fma", "neoverse-n1": "neon"}
    return machine_from(name, frozenset({features[name]}), threads)


def direct(channels: int, size: int, on: Machine, batch: int = 1) -> ConvolutionShape:
    """A convolution of 3 x 3 taps, with as many outputs as inputs and a border."""
    lanes = on.lanes(32)
    blocks = ceil(channels / lanes)
    taps = TAPS**2 * blocks * lanes
    return ConvolutionShape(
        batch=batch,
        groups=1,
        blocks=blocks,
        rows=size,
        columns=size,
        taps=taps,
        contiguous=False,
        channels=blocks,
        image=batch * blocks * lanes * size**2,
        weights=taps * blocks * lanes,
    )


@pytest.mark.parametrize("side", POINTS)
def test_the_transforms_convolve(side: int) -> None:
    matrices = transforms(side)
    output, weights, image = map(np.array, (matrices.output, matrices.weights, matrices.image))
    draws = np.random.default_rng(0)
    pixels, taps = draws.standard_normal((side + 2, side + 2)), draws.standard_normal((3, 3))

    result = output @ ((weights @ taps @ weights.T) * (image @ pixels @ image.T)) @ output.T

    windows = np.lib.stride_tricks.sliding_window_view(pixels, (3, 3))
    np.testing.assert_allclose(result, np.einsum("yxij,ij->yx", windows, taps), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("side", POINTS)
def test_the_transforms_convolve_sequences(side: int) -> None:
    down, across = map(transforms, tile_of(side, 1))
    draws = np.random.default_rng(0)
    pixels, taps = draws.standard_normal((1, side + 2)), draws.standard_normal((1, 3))

    products = (np.array(down.weights) @ taps @ np.array(across.weights).T) * (
        np.array(down.image) @ pixels @ np.array(across.image).T
    )
    result = np.array(down.output) @ products @ np.array(across.output).T

    np.testing.assert_allclose(result[0], np.correlate(pixels[0], taps[0]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("side", POINTS)
def test_the_transforms_of_images_and_outputs_are_exact_in_float32(side: int) -> None:
    matrices = transforms(side)
    for matrix in map(np.array, (matrices.image, matrices.output)):
        np.testing.assert_array_equal(matrix.astype(np.float32), matrix)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, 2), (1, -2)], ((0, 1),)),
        ([(1, 2), (-1, -2)], ()),
        ([(1, 2), (1, 2)], ()),
        ([(1, 2), (1, 3), (-1, 2), (1, -3)], ((0, 2), (1, 3))),
        ([(1, 0), (-1, 0)], ()),
    ],
)
def test_rows_that_differ_in_some_signs_are_twins(
    rows: list[tuple[float, ...]], expected: tuple[tuple[int, int], ...]
) -> None:
    assert twins(rows) == expected


@pytest.mark.parametrize(
    ("processor", "channels", "size", "side"),
    [
        ("sapphirerapids", 64, 56, 4),
        ("sapphirerapids", 128, 28, 4),
        ("sapphirerapids", 256, 14, 2),
        ("sapphirerapids", 512, 7, None),
        ("sapphirerapids", 64, 224, 4),
        ("sapphirerapids", 16, 8, None),
        ("znver3", 64, 56, 4),
        ("znver3", 512, 7, None),
        ("neoverse-n1", 64, 56, 4),
        ("neoverse-n1", 512, 7, None),
    ],
)
def test_the_model_chooses_the_tile_of_each_layer(
    processor: str, channels: int, size: int, side: int | None
) -> None:
    on = machine(processor)

    found = faster_by_winograd(direct(channels, size, on), on)

    assert (found[0].side if found else None) == side


@pytest.mark.parametrize(
    ("processor", "channels", "length", "side"),
    [
        ("sapphirerapids", 64, 3000, 4),
        ("sapphirerapids", 16, 8, None),
        ("znver3", 64, 3000, 4),
        ("znver3", 256, 500, 4),
        ("znver3", 256, 4, None),
        ("neoverse-n1", 64, 3000, 4),
    ],
)
def test_the_model_chooses_the_tile_of_each_sequence(
    processor: str, channels: int, length: int, side: int | None
) -> None:
    on = machine(processor)
    lanes = on.lanes(32)
    blocks = channels // lanes
    layer = Layer(1, blocks, 1, length, blocks, 1, length, lanes, dimensions=1)

    found = faster_by_winograd(layer.direct, on)

    assert (found[0].side if found else None) == side


def test_a_single_tile_is_computed_directly() -> None:
    on = machine("sapphirerapids")

    assert faster_by_winograd(direct(64, 2, on), on) == ()


def test_threads_share_few_tiles_by_their_output_channels() -> None:
    on = machine("sapphirerapids", threads=8)
    shape = WinogradShape(side=2, batch=1, inputs=16, outputs=16, rows=14, columns=14, blocks=2, lanes=16)

    plan = winograd_plans(shape, on)[0]

    assert plan.parts == 8


def test_plans_fit_the_registers_and_the_second_cache() -> None:
    on = machine("znver3")
    shape = WinogradShape(side=4, batch=2, inputs=16, outputs=16, rows=28, columns=28, blocks=2, lanes=8)

    plans = winograd_plans(shape, on)

    assert plans
    for plan in plans:
        assert plan.tiles * shape.blocks + shape.blocks + 1 <= on.registers
        assert 36 * plan.strip * (shape.inputs + shape.blocks) * shape.lanes * 4 <= on.l2_bytes
