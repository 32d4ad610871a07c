"""Expired leases, by the observer's clock."""

from datetime import UTC, datetime, timedelta

import pytest

from bessemer.store.queue.reaper import Leases

LEASE_SECONDS = 4.0
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)
YEARS_AGO = NOON - timedelta(days=1000)


@pytest.mark.parametrize(
    ("looks", "lost"),
    [
        pytest.param([(0, NOON), (2, NOON), (4, NOON)], True, id="silent for a lease"),
        pytest.param([(0, NOON), (2, NOON), (3.9, NOON)], False, id="silent for less"),
        pytest.param([(0, NOON), (2, LATER), (4, LATER)], False, id="beats"),
        pytest.param([(0, NOON), (2, YEARS_AGO), (4, YEARS_AGO)], False, id="the clock jumped back"),
        pytest.param([(0, YEARS_AGO)], False, id="the clocks of two hosts differ"),
        pytest.param([(0, NOON), (1, NOON), (9, NOON)], False, id="the observer stood still"),
        pytest.param([(0, NOON), (9, NOON), (11, NOON), (13, NOON)], True, id="and counts anew"),
        pytest.param([(0, NOON), (1, None), (2, NOON), (4, NOON)], False, id="left and came back"),
    ],
)
def test_a_worker_is_lost_once_it_is_silent_for_a_lease(
    looks: list[tuple[float, datetime | None]], lost: bool
) -> None:
    seconds = iter([0.0, *(moment for moment, _ in looks)])
    leases = Leases(LEASE_SECONDS, lambda: next(seconds))
    found = [leases.lost({} if beat is None else {"w": beat}) for _, beat in looks]
    assert found[-1] == (("w",) if lost else ())


def test_each_worker_has_a_lease_of_its_own() -> None:
    seconds = iter((0.0, 0.0, 2.0, 4.0))
    leases = Leases(LEASE_SECONDS, lambda: next(seconds))
    assert leases.lost({"a": NOON}) == ()
    assert leases.lost({"a": NOON, "b": NOON}) == ()
    assert leases.lost({"a": NOON, "b": NOON}) == ("a",)
