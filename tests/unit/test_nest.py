import pytest

from worker.compiler.schedules import nest


@pytest.mark.parametrize(
    ("parts", "most", "counts"),
    [
        (22, 6, [5, 6, 5, 6]),
        (22, 8, [7, 7, 8]),
        (28, 14, [14, 14]),
        (7, 1, [1] * 7),
        (25, 30, [25]),
        (33, 22, [16, 17]),
    ],
)
def test_chunks_have_every_part_once_and_are_alike(parts: int, most: int, counts: list[int]) -> None:
    shares = [nest.share(chunk, parts, most) for chunk in range(len(counts))]
    assert [count for _, count in shares] == counts
    assert [first + place for first, count in shares for place in range(count)] == list(range(parts))


@pytest.mark.parametrize(("parts", "chunks"), [(5, 4), (24, 16), (6, 3), (1, 1)])
def test_as_many_chunks_as_wanted_share_the_parts(parts: int, chunks: int) -> None:
    portions = [nest.portion(chunk, parts, chunks) for chunk in range(chunks)]
    assert [first + place for first, count in portions for place in range(count)] == list(range(parts))
    assert {count for _, count in portions} <= {parts // chunks, -(-parts // chunks)}
