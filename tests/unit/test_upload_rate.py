"""The minimum rate of an upload."""

import pytest

from bessemer.store.blobs.uploads import MinimumRate


@pytest.mark.parametrize(
    ("received_bytes", "waited_seconds", "kept"),
    [
        (0, 0.0, True),
        (1, 60.0, True),
        (6_099, 61.0, False),
        (6_100, 61.0, True),
        (10**9, 10**6, True),
        (10**6, 10**6, False),
    ],
)
def test_the_mean_rate_counts_after_an_initial_wait(
    received_bytes: int, waited_seconds: float, kept: bool
) -> None:
    rate = MinimumRate(idle_seconds=60, min_bytes_per_second=100)
    assert rate.is_met(received_bytes, waited_seconds) is kept


def test_without_a_minimum_rate_every_upload_passes() -> None:
    assert MinimumRate(idle_seconds=60, min_bytes_per_second=0).is_met(1, 10**6)
