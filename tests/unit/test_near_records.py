"""Which functions count as similar."""

from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bessemer.contract.records import SizedFunction
from bessemer.store.rows.near_records import MAX_DISTANCE, NEAREST, distance, nearest


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ((64, 56, 56), (64, 56, 56), 0.0),
        ((64, 56, 56), (128, 28, 28), 3.0),
        ((128, 28, 28), (64, 56, 56), 3.0),
        ((1, 8), (1, 2), 2.0),
        ((64, 56), (64, 56, 1), inf),
        ((), (), 0.0),
    ],
)
def test_functions_differ_by_the_quotients_of_their_sizes(
    own: tuple[int, ...], other: tuple[int, ...], expected: float
) -> None:
    assert distance(own, other) == expected


def row(workload: str, *extents: int) -> Any:
    return SimpleNamespace(id=workload, workload=workload, extents=list(extents))


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], []),
        ([row("own", 64)], []),
        ([row("far", 64 << 9)], []),
        ([row("edge", 64 << int(MAX_DISTANCE))], ["edge"]),
        ([row("other loops", 64, 64)], []),
        ([row("c", 256), row("b", 128), row("a", 64), row("d", 512)], ["a", "b"]),
    ],
)
def test_the_most_similar_functions_of_a_kind_are_found(rows: list[Any], found: list[str]) -> None:
    assert NEAREST == 2
    function = SizedFunction.model_construct(workload="own", kinds=("0" * 64,), extents=(64,))
    kind = cast(Any, {each.workload: each for each in rows})
    assert [each.workload for each in nearest(function, [kind])] == found
