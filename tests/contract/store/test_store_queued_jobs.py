"""The queued jobs, and how long recent jobs took."""

from datetime import timedelta

import sqlalchemy as sa
from store_samples import FIGURES, TARGET, a_problem, a_request

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.queue import TaskKind
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget
from bessemer.store.queue_port import Task
from bessemer.store.rows.queued_jobs import QueuedGroup
from bessemer.store.rows.tables import JOBS
from bessemer.store.store import Store
from tests.tenant_data import own, started

NEEDS = "x86_64 znver4"


def test_only_queued_jobs_wait_each_with_kind_needs_and_priority(store: Store) -> None:
    host = a_request().model_copy(update={"target": PresetTarget(preset="host"), "priority": -3})
    own(store).jobs.submit("job-explicit", a_request())
    own(store).jobs.submit("job-on-host", host)
    own(store).jobs.submit("job-quick", a_request().model_copy(update={"stop_after": Stage.TRANSLATE}))
    own(store).jobs.submit("job-running", a_request())
    started(store.jobs, "job-running", "worker")
    own(store).jobs.submit("job-like-the-first", a_request())
    assert set(map(_shown, store.queued_jobs.groups())) == {
        (TaskKind.COMPILE, NEEDS, 0, (("job-explicit", 1), ("job-like-the-first", 3))),
        (TaskKind.COMPILE, None, -3, (("job-on-host", 4),)),
        (TaskKind.PREFLIGHT, NEEDS, 0, (("job-quick", 2),)),
    }


def test_jobs_are_ranked_within_their_tenant_and_its_durations_are_its_own(store: Store) -> None:
    for tenant, count in (("one", 3), ("two", 2)):
        for number in range(count):
            store.for_tenant(tenant).jobs.submit(f"job-{number}-of-{tenant}", a_request())
    store.jobs.fail("job-0-of-one", started(store.jobs, "job-0-of-one"), a_problem())
    ranks = {group.tenant: dict(group.ranks) for group in store.queued_jobs.groups()}
    assert ranks == {
        "one": {"job-1-of-one": 1, "job-2-of-one": 2},
        "two": {"job-0-of-two": 1, "job-1-of-two": 2},
    }
    durations = [store.queued_jobs.recent_seconds(name, TaskKind.COMPILE, 9) for name in ("one", "two")]
    assert list(map(len, durations)) == [1, 0]


def test_where_nothing_waits_there_is_no_group(store: Store) -> None:
    assert store.queued_jobs.groups() == ()


def test_a_jobs_task_says_what_the_queue_must_know(store: Store) -> None:
    own(store).jobs.submit("job-explicit", a_request().model_copy(update={"priority": 5}))
    task = own(store).jobs.task("job-explicit")
    assert task == Task(TaskKind.COMPILE, "job-explicit")
    assert task is not None and (task.priority, task.needs) == (5, NEEDS)
    assert own(store).jobs.task("job-unknown") is None


def test_the_jobs_that_ended_last_say_how_long_such_jobs_take(store: Store) -> None:
    for number in range(4):
        own(store).jobs.submit(f"job-ended-{number}", a_request())
        attempt = started(store.jobs, f"job-ended-{number}", "worker")
        if number == 3:
            store.jobs.cancel_finished(f"job-ended-{number}", attempt)
        elif number == 2:
            store.jobs.fail(f"job-ended-{number}", attempt, a_problem())
        else:
            store.jobs.succeed(f"job-ended-{number}", attempt, TARGET, True, FIGURES, ())
        _last(store, f"job-ended-{number}", seconds=10.0 + number)
    assert store.queued_jobs.recent_seconds(DEFAULT_TENANT, TaskKind.COMPILE, 2) == (12.0, 11.0)
    assert store.queued_jobs.recent_seconds(DEFAULT_TENANT, TaskKind.COMPILE, 50) == (12.0, 11.0, 10.0)
    assert store.queued_jobs.recent_seconds(DEFAULT_TENANT, TaskKind.PREFLIGHT, 50) == ()


def _shown(group: QueuedGroup) -> tuple[object, ...]:
    return (group.kind, group.needs, group.priority, tuple(sorted(group.ranks.items())))


def _last(store: Store, job_id: str, seconds: float) -> None:
    with store.database.write() as connection:
        row = sa.select(JOBS.c.finished_at).where(JOBS.c.id == job_id)
        finished_at = connection.execute(row).scalar_one()
        started_at = finished_at - timedelta(seconds=seconds)
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(started_at=started_at))
