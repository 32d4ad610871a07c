"""Whose turn it is, as tables."""

import pytest

from bessemer.contract.tenant_turns import Standing, next_tenant


@pytest.mark.parametrize(
    ("waiting", "chosen"),
    [
        ([], None),
        ([Standing(7, 3, "a")], "a"),
        ([Standing(1, 0, "a"), Standing(0, 9, "b")], "b"),
        ([Standing(1, 5, "a"), Standing(1, 4, "b"), Standing(2, 1, "c")], "b"),
        ([Standing(0, 0, "b"), Standing(0, 0, "a")], "a"),
        ([Standing(1, 1, "a", most=1), Standing(3, 2, "b")], "b"),
        ([Standing(1, 1, "a", most=1), Standing(2, 2, "b", most=2)], None),
        ([Standing(1, 1, "a", most=2), Standing(2, 2, "b", most=9)], "a"),
        ([Standing(0, 1, "a", most=0)], None),
    ],
    ids=[
        "none",
        "alone",
        "fewest",
        "least recent",
        "never",
        "at limit",
        "all at limit",
        "below",
        "suspended",
    ],
)
def test_the_tenant_with_the_fewest_running_tasks_is_next_then_the_least_recently_served(
    waiting: list[Standing], chosen: str | None
) -> None:
    assert next_tenant(waiting) == chosen
    assert next_tenant(reversed(waiting)) == chosen


def test_tenants_that_stay_equal_take_turns() -> None:
    served = dict.fromkeys("abc", 0)
    order = []
    for turn in range(1, 8):
        tenant = next_tenant(Standing(0, number, name) for name, number in served.items())
        assert tenant is not None
        served[tenant] = turn
        order.append(tenant)
    assert order == [*"abcabca"]
