"""Groups: all of a group's jobs are inserted, or none; each then lives on its own."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from store_samples import ARTIFACTS, DIGEST, FIGURES, TARGET, a_problem

from bessemer.contract.job import Compilation, JobState
from bessemer.contract.listing import CompilationFilter
from bessemer.contract.request import CompilationRequest, Submission
from bessemer.store.errors import IdempotencyConflictError, JobNotFinalError
from bessemer.store.store import Store
from tests.tenant_data import own, started

GROUP = "group-000001"
NAMES = ("host", "aarch64", "riscv64")


def requests(*names: str, **fields: object) -> dict[str, CompilationRequest]:
    document = {"model": DIGEST, "target": list(names or NAMES), **fields}
    wanted = Submission.model_validate(document).for_each_target()
    return {f"job-0000000{index}": request for index, request in enumerate(wanted)}


def submit(store: Store, *names: str, **fields: object) -> tuple[Compilation, ...]:
    return own(store).jobs.submit_group(GROUP, requests(*names, **fields))


def states(store: Store) -> list[JobState]:
    return [job.state for job in own(store).jobs.group(GROUP)]


def test_a_group_has_its_jobs_in_the_order_of_the_targets(store: Store) -> None:
    jobs = submit(store, labels={"team": "vision"})
    assert [job.target_name for job in jobs] == list(NAMES)
    assert {job.group for job in jobs} == {GROUP}
    assert own(store).jobs.group(GROUP) == jobs
    assert own(store).jobs.get(jobs[1].id) == jobs[1]
    assert own(store).jobs.page(10, None, CompilationFilter(label=("team=vision",))).items == jobs[::-1]


def test_the_jobs_of_a_group_are_listed_by_it(store: Store) -> None:
    own(store).jobs.submit("job-of-its-own", next(iter(requests().values())))
    jobs = submit(store)
    assert own(store).jobs.page(10, None, CompilationFilter(group=GROUP)).items == jobs[::-1]
    assert own(store).jobs.page(10, None, CompilationFilter(group="group-000002")).items == ()


def test_a_group_is_found_by_the_start_of_its_id(store: Store) -> None:
    submit(store)
    assert own(store).jobs.groups_starting("group-", 6) == (GROUP,)
    assert own(store).jobs.groups_starting("job-", 6) == ()


def test_another_tenants_group_does_not_exist(store: Store) -> None:
    submit(store)
    other = store.for_tenant("other").jobs
    assert (other.group(GROUP), other.groups_starting("group-", 6)) == ((), ())
    assert not other.delete_group(GROUP)
    with pytest.raises(IdempotencyConflictError):
        other.submit_group(GROUP, requests())


def test_the_same_submission_again_gives_the_same_group(store: Store) -> None:
    assert submit(store) == submit(store)


@pytest.mark.parametrize(
    ("names", "fields"),
    [
        (("host", "aarch64"), {}),
        (("host", "aarch64", "riscv64", "x86-64-v2"), {}),
        (("aarch64", "host", "riscv64"), {}),
        (NAMES, {"tune": {"trials": 1}}),
    ],
)
def test_another_request_under_the_same_id_is_refused_and_inserts_nothing(
    store: Store, names: tuple[str, ...], fields: dict[str, object]
) -> None:
    before = submit(store)
    with pytest.raises(IdempotencyConflictError):
        submit(store, *names, **fields)
    assert own(store).jobs.group(GROUP) == before
    assert own(store).jobs.page(10).items == before[::-1]


def test_a_group_and_a_job_never_share_an_id(store: Store) -> None:
    request = next(iter(requests().values()))
    own(store).jobs.submit(GROUP, request)
    with pytest.raises(IdempotencyConflictError):
        submit(store)
    own(store).jobs.submit_group("group-000002", requests())
    with pytest.raises(IdempotencyConflictError):
        own(store).jobs.submit("group-000002", request)


def test_a_job_of_another_id_is_refused_and_none_is_inserted(store: Store) -> None:
    own(store).jobs.submit("job-00000001", next(iter(requests().values())))
    with pytest.raises(IdempotencyConflictError):
        submit(store)
    assert own(store).jobs.group(GROUP) == ()


def test_submissions_at_the_same_moment_make_one_group(store: Store) -> None:
    barrier = Barrier(4)

    def submit_at_once(_: int) -> tuple[Compilation, ...]:
        barrier.wait()
        return submit(store)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(submit_at_once, range(4)))
    assert [job.created_at for job in results[0]] == [job.created_at for job in results[3]]
    assert len(own(store).jobs.page(10).items) == len(NAMES)


def test_a_job_that_fails_does_not_affect_the_others(store: Store) -> None:
    first, second, third = submit(store)
    store.jobs.fail(first.id, started(store.jobs, first.id, "w"), a_problem())
    own(store).jobs.request_cancel(second.id)
    attempt = started(store.jobs, third.id, "w")
    store.jobs.succeed(third.id, attempt, TARGET, True, FIGURES, ARTIFACTS)
    assert states(store) == [JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED]


def test_a_deleted_job_is_submitted_again_alone(store: Store) -> None:
    first, second, third = submit(store)
    for job in (first, second, third):
        own(store).jobs.request_cancel(job.id)
    assert own(store).jobs.delete(second.id)
    again = submit(store)
    assert [job.state for job in again] == [JobState.CANCELLED, JobState.QUEUED, JobState.CANCELLED]
    assert [job.target_name for job in again] == list(NAMES)


def test_a_group_is_deleted_whole_or_not_at_all(store: Store) -> None:
    first, *others = submit(store)
    for job in others:
        own(store).jobs.request_cancel(job.id)
    with pytest.raises(JobNotFinalError, match=first.id):
        own(store).jobs.delete_group(GROUP)
    assert len(states(store)) == len(NAMES)
    own(store).jobs.request_cancel(first.id)
    assert own(store).jobs.delete_group(GROUP)
    assert not own(store).jobs.delete_group(GROUP)
    assert own(store).jobs.page(10).items == ()
