"""The end of what jobs print."""

import pytest
from store_samples import a_problem, a_request

from bessemer.store.errors import FencedError
from bessemer.store.store import Store
from tests.tenant_data import own, started

JOB = "job-00000001"


def test_the_last_word_of_the_attempt_that_owns_the_job_is_kept(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    assert own(store).jobs.log_tail(JOB) == ""
    attempt = started(store.jobs, JOB, "w1")
    store.logs.write(JOB, attempt, "one\0")
    second = started(store.jobs, JOB, "w2")
    store.logs.write(JOB, second, "two")
    with pytest.raises(FencedError):
        store.logs.write(JOB, attempt, "three")
    store.jobs.fail(JOB, second, a_problem())
    with pytest.raises(FencedError):
        store.logs.write(JOB, second, "four")
    assert own(store).jobs.log_tail(JOB) == "two"


def test_what_no_database_can_keep_is_replaced(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "w1")
    store.logs.write(JOB, attempt, "a\0b")
    assert own(store).jobs.log_tail(JOB) == "a\N{REPLACEMENT CHARACTER}b"
