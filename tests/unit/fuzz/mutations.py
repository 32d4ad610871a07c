"""Bytes that are almost valid, and bytes in pieces."""

import re
from itertools import pairwise

from hypothesis import strategies as st

MAX_EDITS = 4
MAX_EDIT_BYTES = 64
NUMBERS = st.sampled_from(
    [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 63, (1 << 64) - 1]
)
WIDTHS = st.sampled_from([1, 2, 4, 8])


@st.composite
def mutated(draw: st.DrawFn, samples: st.SearchStrategy[bytes], mark: bytes = b"") -> bytes:
    """A sample after a few edits, most of them near a ``mark`` if it has one."""
    data = bytearray(draw(samples))
    for _ in range(draw(st.integers(0, MAX_EDITS))):
        start = draw(_places(bytes(data), mark))
        end = min(len(data), start + draw(st.integers(0, MAX_EDIT_BYTES)))
        match draw(st.sampled_from(["write", "number", "insert", "cut", "repeat", "truncate"])):
            case "write":
                written = draw(st.binary(max_size=end - start))
                data[start : start + len(written)] = written
            case "number":
                width = draw(WIDTHS)
                number = draw(NUMBERS | st.integers(0, len(data)))
                data[start : start + width] = number.to_bytes(8, "little")[:width]
            case "insert":
                data[start:start] = draw(st.binary(max_size=MAX_EDIT_BYTES))
            case "cut":
                del data[start:end]
            case "repeat":
                data[start:start] = data[start:end]
            case "truncate":
                del data[start:]
    return bytes(data)


def _places(data: bytes, mark: bytes) -> st.SearchStrategy[int]:
    anywhere = st.integers(0, len(data))
    marks = [found.start() for found in re.finditer(re.escape(mark), data)] if mark else []
    if not marks:
        return anywhere
    near = st.tuples(st.sampled_from(marks), st.integers(0, 48))
    return near.map(lambda place: min(len(data), sum(place))) | anywhere


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes, cut at these places; no piece is empty."""
    edges = sorted(min(cut, len(data)) for cut in (0, *cuts, len(data)))
    return [data[start:end] for start, end in pairwise(edges) if start < end]
