"""Headers and cursors of any text mean something or are refused."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.accept import prefers_html
from app.http.ranges import ByteRange, RangeNotSatisfiableError, not_modified, requested_range
from app.http.request_ids import accepted_id
from bessemer.contract.base import JOB_ID_PATTERN
from bessemer.store.errors import CursorInvalidError
from bessemer.store.rows.paging import Position, from_cursor, to_cursor

pytestmark = pytest.mark.fuzz

ETAG = '"0123456789abcdef"'


def texts(*words: str) -> st.SearchStrategy[str]:
    """Headers: any text that a header can have, or these words in any order."""
    latin = st.text(st.characters(codec="latin-1"), max_size=40)
    return latin | st.lists(st.sampled_from(words) | latin, max_size=8).map("".join)


@given(
    texts("bytes", "=", "-", ",", "0", "9" * 18, "9" * 30, " ", "٣"),
    st.none() | texts(ETAG, "W/"),
    st.integers(0, 1 << 40),
)
def test_a_range_lies_inside_the_file_or_is_refused(
    header: str, if_range: str | None, size_bytes: int
) -> None:
    try:
        found = requested_range(header, if_range, ETAG, size_bytes)
    except RangeNotSatisfiableError:
        return
    if found is not None:
        assert 0 <= found.start < found.end <= size_bytes


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_a_range_is_the_one_that_is_asked_for(start: int, length: int, rest: int) -> None:
    size_bytes, end = start + length + rest, start + length
    assert requested_range(f"bytes={start}-{end - 1}", None, ETAG, size_bytes) == ByteRange(start, end)
    last = requested_range(f"bytes=-{length}", None, ETAG, size_bytes)
    assert last == ByteRange(size_bytes - length, size_bytes)


@given(texts("*", ETAG, "W/", ",", " ", '"'))
def test_only_its_own_tag_says_that_a_file_is_unchanged(header: str) -> None:
    if not_modified(header, ETAG):
        assert ETAG in header or header.strip() == "*"


@given(texts("text/html", "application/json", "*/*", "text/*", ";", "q=", "0.5", "nan", "inf", ","))
def test_any_accept_header_has_an_answer(header: str) -> None:
    assert prefers_html(header) in (True, False)


@given(texts("a", "-", "\r\n"))
def test_a_request_id_is_safe_to_log(given_id: str) -> None:
    found = accepted_id(given_id)
    assert found.isascii() and found.isprintable() and 0 < len(found) <= 128


@given(st.datetimes(timezones=st.just(UTC)), st.from_regex(JOB_ID_PATTERN, fullmatch=True))
def test_a_cursor_stays_the_same(moment: datetime, row_id: str) -> None:
    assert from_cursor(to_cursor(Position(moment, row_id))) == Position(moment, row_id)


@given(texts("MjAyNi0wMS0wMlQwMzowNDowNSswMDowMCBqb2ItMDAwMDAwMDE", "=", "A"))
def test_a_cursor_is_read_or_refused(cursor: str) -> None:
    try:
        position = from_cursor(cursor)
    except CursorInvalidError:
        return
    assert from_cursor(to_cursor(position)) == position
