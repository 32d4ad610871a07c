"""Cursors are opaque, URL-safe, and accepted only if this service made them."""

import base64
import string
from datetime import UTC, datetime, timedelta, timezone

import pytest

from bessemer.store.errors import CursorInvalidError
from bessemer.store.rows.paging import Position, from_cursor, to_cursor

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


@pytest.mark.parametrize("job_id", ["job-00000001", "a" * 64])
@pytest.mark.parametrize("moment", [MOMENT, MOMENT.replace(microsecond=0)])
def test_a_cursor_round_trips(moment: datetime, job_id: str) -> None:
    cursor = to_cursor(Position(moment, job_id))
    assert from_cursor(cursor) == Position(moment, job_id)
    assert set(cursor) <= set(string.ascii_letters + string.digits + "-_")


def test_a_cursor_keeps_the_instant_across_time_zones() -> None:
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5)))
    assert from_cursor(to_cursor(Position(elsewhere, "job-00000001"))).created_at == MOMENT


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05 job-00000001",
        "0001-01-01T00:00:00+23:00 job-00000001",
        "2026-01-02T03:04:05+00:00 job-0000\x001",
        "2026-01-02T03:04:05+00:00 job-00000001 more",
        "2026-01-02T03:04:05+00:00 ",
        "yesterday job-00000001",
    ],
)
def test_a_forged_cursor_is_refused(text: str) -> None:
    with pytest.raises(CursorInvalidError):
        from_cursor(base64.urlsafe_b64encode(text.encode()).decode())


@pytest.mark.parametrize("text", ["", " ", "?", "a", "bm9uZQ", "MjAyNi0wMS0wMg", "é", "\x00", "A" * 1000])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CursorInvalidError):
        from_cursor(text)
