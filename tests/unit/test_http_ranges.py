"""Ranges and conditions of downloads."""

import pytest

from app.http.ranges import ByteRange, RangeNotSatisfiableError, not_modified, requested_range

ETAG = '"abc"'


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-", ByteRange(0, 10)),
        ("bytes=0-9", ByteRange(0, 10)),
        ("bytes=0-99", ByteRange(0, 10)),
        ("bytes=3-3", ByteRange(3, 4)),
        ("Bytes = 3-4", ByteRange(3, 5)),
        ("bytes=-1", ByteRange(9, 10)),
        ("bytes=-99", ByteRange(0, 10)),
        ("bytes=0-1,3-4", None),
        ("items=0-1", None),
        ("", None),
    ],
)
def test_a_range_is_resolved_against_the_size(header: str | None, expected: ByteRange | None) -> None:
    assert requested_range(header, None, ETAG, 10) == expected


@pytest.mark.parametrize(
    "header", ["bytes=10-", "bytes=5-4", "bytes=-0", "bytes=-", "bytes=a-b", "bytes=", "bytes=1"]
)
def test_a_range_without_a_byte_is_not_satisfiable(header: str) -> None:
    with pytest.raises(RangeNotSatisfiableError):
        requested_range(header, None, ETAG, 10)


def test_an_empty_artifact_has_no_satisfiable_range() -> None:
    with pytest.raises(RangeNotSatisfiableError):
        requested_range("bytes=0-", None, ETAG, 0)


@pytest.mark.parametrize("condition", ['"other"', 'W/"abc"', "Sat, 01 Jan 2000 00:00:00 GMT"])
def test_a_range_in_another_unit_returns_the_whole_artifact(condition: str) -> None:
    assert requested_range("bytes=0-1", condition, ETAG, 10) is None
    assert requested_range("bytes=0-1", ETAG, ETAG, 10) == ByteRange(0, 2)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ("*", True),
        (ETAG, True),
        (f"W/{ETAG}", True),
        (f'"x", {ETAG}', True),
        ('"x"', False),
        ("abc", False),
    ],
)
def test_a_version_the_client_already_has_is_recognized(header: str | None, expected: bool) -> None:
    assert not_modified(header, ETAG) is expected
