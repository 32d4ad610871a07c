"""What a device says of candidates is checked before a search learns from it."""

import pytest

from bessemer.contract.device import DeviceCandidate
from worker.protocol.order import TimedCandidate
from worker.supervisor.search_step import MAX_ERROR_CHARACTERS, as_timed

NO_TIMES = TimedCandidate(error="the device did not send positive times for all 2 rounds")


@pytest.mark.parametrize(
    ("candidate", "timed"),
    [
        (DeviceCandidate(rounds_ms=((3, 1, 2), (5,))), TimedCandidate(seconds=(0.002, 0.005))),
        (DeviceCandidate(failure="SIGSEGV"), TimedCandidate(error="SIGSEGV")),
        (DeviceCandidate(failure="x" * 1000), TimedCandidate(error="x" * MAX_ERROR_CHARACTERS)),
        (DeviceCandidate(rounds_ms=((1,), (1,)), failure="late"), TimedCandidate(error="late")),
        (DeviceCandidate(), NO_TIMES),
        (DeviceCandidate(rounds_ms=((1,),)), NO_TIMES),
        (DeviceCandidate(rounds_ms=((1,), (1,), (1,))), NO_TIMES),
        (DeviceCandidate(rounds_ms=((0,), (1,))), NO_TIMES),
    ],
)
def test_only_whole_and_possible_times_count(candidate: DeviceCandidate, timed: TimedCandidate) -> None:
    assert as_timed(candidate, 2) == timed
