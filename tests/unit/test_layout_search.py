"""Which algorithms a search measures for a model's convolutions."""

import pytest

from worker.compiler.schedules.families.convolution.layers import (
    DIRECT,
    Algorithm,
    Layer,
    expected_cycles,
    layer_of,
)
from worker.compiler.schedules.processors import machine_from
from worker.compiler.tuning.layout_search import MeasuredLayer, worthwhile

WIDE = Layer(1, 4, 56, 56, 4, 56, 56, 16)
DEEP = Layer(1, 32, 7, 7, 32, 7, 7, 16)
CYCLES = {
    WIDE: {DIRECT: 100.0, 2: 70.0, 4: 50.0},
    DEEP: {DIRECT: 100.0, 2: 150.0, 4: 400.0},
}


def chosen(most: int, *standings: tuple[Layer, int, float]) -> list[tuple[Layer, int]]:
    known = [MeasuredLayer(Algorithm(layer, side), seconds) for layer, side, seconds in standings]
    return [(each.layer, each.side) for each in worthwhile(known, CYCLES.__getitem__, most)]


@pytest.mark.parametrize(
    ("most", "standings", "expected"),
    [
        (8, [], []),
        (8, [(WIDE, 4, 1.0)], [(WIDE, 2)]),
        (8, [(WIDE, 2, 1.0)], [(WIDE, 4), (WIDE, DIRECT)]),
        (8, [(DEEP, DIRECT, 1.0)], [(DEEP, 2)]),
        (8, [(WIDE, 2, 1.0), (DEEP, DIRECT, 20.0)], [(DEEP, 2), (WIDE, 4), (WIDE, DIRECT)]),
        (1, [(WIDE, 2, 1.0), (DEEP, DIRECT, 20.0)], [(DEEP, 2)]),
        (8, [(WIDE, 2, 1.0), (DEEP, DIRECT, 1000.0)], [(DEEP, 2)]),
        (0, [(WIDE, 2, 1.0)], []),
    ],
)
def test_algorithms_that_may_gain_most_are_measured_first(
    most: int, standings: list[tuple[Layer, int, float]], expected: list[tuple[Layer, int]]
) -> None:
    assert chosen(most, *standings) == expected


@pytest.mark.parametrize("layer", [WIDE, DEEP, Layer(1, 4, 1, 56, 4, 1, 56, 16, dimensions=1)])
def test_a_key_names_a_layer(layer: Layer) -> None:
    assert layer_of(layer.key) == layer


@pytest.mark.parametrize("key", ["", "1x2", "1x4x56x56x4x56x56xa", "1x4x56x56x4x56x56x16x1x1"])
def test_other_texts_name_no_layer(key: str) -> None:
    assert layer_of(key) is None


def test_the_model_expects_cycles_of_every_algorithm() -> None:
    cycles = expected_cycles(WIDE, machine_from("sapphirerapids", frozenset({"avx512f"}), 2))
    assert sorted(cycles) == [DIRECT, 2, 4]
    assert cycles[4] < cycles[DIRECT]


def test_a_layer_is_shown_by_its_channels_and_pixels() -> None:
    assert str(WIDE) == "64x56x56 -> 64"
