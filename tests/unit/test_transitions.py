"""The table of moves between a job's states."""

import pytest

from bessemer.contract.job import TRANSITIONS, JobState
from bessemer.store.rows.transitions import sources


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(JobState)


def test_no_move_leads_back_to_the_beginning() -> None:
    assert sources(JobState.QUEUED) == ()


@pytest.mark.parametrize("state", JobState)
def test_a_state_is_final_when_no_move_leads_out_of_it(state: JobState) -> None:
    assert state.final == (state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED))


def test_only_a_running_job_succeeds() -> None:
    assert sources(JobState.SUCCEEDED) == (JobState.RUNNING,)


@pytest.mark.parametrize("target", [JobState.FAILED, JobState.CANCELLED])
def test_a_job_may_fail_or_be_cancelled_until_it_is_final(target: JobState) -> None:
    assert sources(target) == (JobState.QUEUED, JobState.RUNNING)


@pytest.mark.parametrize("source", JobState)
@pytest.mark.parametrize("target", JobState)
def test_sources_are_the_table_read_backward(source: JobState, target: JobState) -> None:
    assert (source in sources(target)) == (target in TRANSITIONS[source])
