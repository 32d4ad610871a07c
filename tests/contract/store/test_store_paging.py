"""Pages of jobs: newest first, by keyset."""

import pytest
from store_samples import a_request

from bessemer.contract.job import JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.store.errors import CursorInvalidError
from bessemer.store.store import Store
from tests.tenant_data import own


def submit(store: Store, numbers: range) -> list[str]:
    ids = [f"job-{number:08}" for number in numbers]
    for job_id in ids:
        own(store).jobs.submit(job_id, a_request())
    return ids


def test_pages_show_every_job_once_newest_first(store: Store) -> None:
    ids = submit(store, range(7))
    seen: list[str] = []
    cursor = None
    sizes = []
    while True:
        page = own(store).jobs.page(3, cursor)
        sizes.append(len(page.items))
        seen.extend(job.id for job in page.items)
        cursor = page.next
        if cursor is None:
            break
    assert seen == ids[::-1]
    assert sizes == [3, 3, 1]


def test_a_page_that_holds_the_rest_has_no_next(store: Store) -> None:
    submit(store, range(3))
    assert own(store).jobs.page(3).next is None
    assert own(store).jobs.page(2).next is not None


def test_jobs_that_arrive_between_two_pages_neither_repeat_nor_hide_any(store: Store) -> None:
    ids = submit(store, range(6))
    seen: list[str] = []
    page = own(store).jobs.page(2)
    arrivals = 6
    while True:
        seen.extend(job.id for job in page.items)
        submit(store, range(arrivals, arrivals + 3))
        arrivals += 3
        if page.next is None:
            break
        page = own(store).jobs.page(2, page.next)
    assert seen == ids[::-1]


def test_pages_of_one_state_hold_no_other(store: Store) -> None:
    ids = submit(store, range(6))
    for job_id in ids[::2]:
        own(store).jobs.request_cancel(job_id)
    first = own(store).jobs.page(2, wanted=CompilationFilter(state=JobState.CANCELLED))
    second = own(store).jobs.page(2, first.next, wanted=CompilationFilter(state=JobState.CANCELLED))
    assert [job.id for job in (*first.items, *second.items)] == ids[::2][::-1]
    assert own(store).jobs.page(10, wanted=CompilationFilter(state=JobState.RUNNING)).items == ()


@pytest.mark.parametrize("cursor", ["", "x", "bm9uZQ", "é", "MjAyNi0wMS0wMQ=="])
def test_a_foreign_cursor_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(CursorInvalidError):
        own(store).jobs.page(2, cursor)
