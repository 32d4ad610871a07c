"""The table of moves between a job's states."""

import pytest

from bessemer.contract.job import TRANSITIONS, JobState


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(JobState)


@pytest.mark.parametrize("state", JobState)
def test_a_state_is_final_when_no_move_leads_out_of_it(state: JobState) -> None:
    assert state.final == (state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED))
