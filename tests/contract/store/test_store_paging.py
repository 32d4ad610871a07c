"""Pages of jobs: newest first, by keyset."""

import pytest
from store_samples import a_request

from bessemer.contract.job import JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.store.errors import CursorInvalidError
from bessemer.store.rows.jobs import Jobs


def submit(jobs: Jobs, numbers: range) -> list[str]:
    ids = [f"job-{number:08}" for number in numbers]
    for job_id in ids:
        jobs.submit(job_id, a_request())
    return ids


def test_pages_show_every_job_once_newest_first(jobs: Jobs) -> None:
    ids = submit(jobs, range(7))
    seen: list[str] = []
    cursor = None
    sizes = []
    while True:
        page = jobs.page(3, cursor)
        sizes.append(len(page.items))
        seen.extend(job.id for job in page.items)
        cursor = page.next
        if cursor is None:
            break
    assert seen == ids[::-1]
    assert sizes == [3, 3, 1]


def test_a_page_that_holds_the_rest_has_no_next(jobs: Jobs) -> None:
    submit(jobs, range(3))
    assert jobs.page(3).next is None
    assert jobs.page(2).next is not None


def test_jobs_that_arrive_meanwhile_neither_repeat_nor_hide_any(jobs: Jobs) -> None:
    ids = submit(jobs, range(6))
    seen: list[str] = []
    page = jobs.page(2)
    arrivals = 6
    while True:
        seen.extend(job.id for job in page.items)
        submit(jobs, range(arrivals, arrivals + 3))
        arrivals += 3
        if page.next is None:
            break
        page = jobs.page(2, page.next)
    assert seen == ids[::-1]


def test_pages_of_one_state_hold_no_other(jobs: Jobs) -> None:
    ids = submit(jobs, range(6))
    for job_id in ids[::2]:
        jobs.request_cancel(job_id)
    first = jobs.page(2, wanted=CompilationFilter(state=JobState.CANCELLED))
    second = jobs.page(2, first.next, wanted=CompilationFilter(state=JobState.CANCELLED))
    assert [job.id for job in (*first.items, *second.items)] == ids[::2][::-1]
    assert jobs.page(10, wanted=CompilationFilter(state=JobState.RUNNING)).items == ()


@pytest.mark.parametrize("cursor", ["", "x", "bm9uZQ", "é", "MjAyNi0wMS0wMQ=="])
def test_a_foreign_cursor_is_refused(jobs: Jobs, cursor: str) -> None:
    with pytest.raises(CursorInvalidError):
        jobs.page(2, cursor)
