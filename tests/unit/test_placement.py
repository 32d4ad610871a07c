"""Placement decides which tensors are stored inside others."""

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.compiler.layout.memory.placement import ALIGNMENT_BYTES, Part, Placement, in_a_row

BLOCK = ALIGNMENT_BYTES


def follow(*sizes: tuple[str, int]) -> list[Part]:
    return in_a_row((tensor, blocks * BLOCK) for tensor, blocks in sizes)


def offset_of(placement: Placement, tensor: str) -> int:
    region = placement.region(tensor)
    assert region is not None
    return region.offsets[tensor] // BLOCK


def test_features_of_a_dense_block_are_appended() -> None:
    placement = Placement()

    assert placement.join("ab", follow(("a", 2), ("b", 1)))
    assert placement.join("abc", follow(("a", 2), ("b", 1), ("c", 3)))
    assert placement.join("abc+d", follow(("abc", 6), ("d", 1)))
    assert [offset_of(placement, tensor) for tensor in ("ab", "abc", "abc+d", "c", "d")] == [0, 0, 0, 3, 6]
    assert placement.region("a") is placement.region("d")


def test_slices_are_parts_of_a_growing_tensor() -> None:
    placement = Placement()

    assert placement.cut("x", 4 * BLOCK, Part("left", 0, 2 * BLOCK))
    assert placement.cut("x", 4 * BLOCK, Part("right", 2 * BLOCK, 2 * BLOCK))
    assert placement.join("more", follow(("left", 2), ("right", 2), ("new", 2)))
    assert offset_of(placement, "new") == 4
    assert not placement.join("middle", follow(("left", 2), ("other", 2)))


def test_overlapping_or_unaligned_parts_are_copied() -> None:
    placement = Placement()
    placement.join("ab", follow(("a", 2), ("b", 1)))

    assert not placement.join("ac", follow(("a", 2), ("c", 1)))
    assert not placement.join("ba", follow(("b", 1), ("a", 2)))
    assert not placement.join("aa", follow(("d", 2), ("d", 2)))
    assert not placement.join("ca", follow(("c", 1), ("a", 2)))
    assert not placement.join("odd", [Part("e", 0, 40), Part("f", 40, 40)])
    assert placement.region("c") is None


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=8))
def test_tensors_that_are_written_apart_never_overlap(joins: list[list[int]]) -> None:
    sizes = {f"t{number}": 1 + number % 3 for number in range(10)}
    written, placement = dict(sizes), Placement()
    for number, chosen in enumerate(joins):
        parts = [(f"t{one}", sizes[f"t{one}"]) for one in chosen]
        if placement.join(f"j{number}", follow(*parts)):
            start = offset_of(placement, f"j{number}")
            assert all(
                offset_of(placement, str(part.tensor)) == start + part.offset_bytes // BLOCK
                for part in follow(*parts)
            )
    taken: set[tuple[int, int]] = set()
    for tensor, size in written.items():
        region = placement.region(tensor)
        if region is not None:
            own = {(id(region), offset_of(placement, tensor) + block) for block in range(size)}
            assert own.isdisjoint(taken)
            assert region.offsets[tensor] + size * BLOCK <= region.end_bytes
            taken |= own
