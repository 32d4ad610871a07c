"""The end of what jobs print."""

import pytest
from store_samples import a_problem, a_request

from bessemer.store.errors import FencedError
from bessemer.store.store import Store

JOB = "job-00000001"


def test_the_last_word_of_the_attempt_that_owns_the_job_is_kept(store: Store) -> None:
    store.jobs.submit(JOB, a_request())
    assert store.logs.read(JOB) == ""
    store.jobs.start(JOB, "w1")
    store.logs.write(JOB, 1, "one\0")
    store.jobs.start(JOB, "w2")
    store.logs.write(JOB, 2, "two")
    with pytest.raises(FencedError):
        store.logs.write(JOB, 1, "three")
    store.jobs.fail(JOB, 2, a_problem())
    with pytest.raises(FencedError):
        store.logs.write(JOB, 2, "four")
    assert store.logs.read(JOB) == "two"


def test_what_no_database_can_keep_is_replaced(store: Store) -> None:
    store.jobs.submit(JOB, a_request())
    store.jobs.start(JOB, "w1")
    store.logs.write(JOB, 1, "a\0b")
    assert store.logs.read(JOB) == "a\N{REPLACEMENT CHARACTER}b"
