"""Events: numbers without gap or repeat, however many write and read."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event as Flag

from store_samples import ARTIFACTS, FIGURES, SANDBOX, TARGET, a_problem, a_request

from bessemer.contract.job import EventType, Progress
from bessemer.contract.report import StageTime
from bessemer.contract.stage import Stage
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import Store
from tests.tenant_data import own, started

JOB = "job-00000001"


def begun(store: Store, job_id: str = JOB) -> Attempt:
    own(store).jobs.submit(job_id, a_request())
    return started(store.jobs, job_id)


def progress(store: Store, attempt: Attempt, done: int) -> None:
    store.jobs.progress(JOB, attempt, Progress(stage=Stage.TUNE, done=done, total=100))


def test_events_follow_one_another_from_any_number(store: Store) -> None:
    attempt = begun(store)
    store.jobs.confined(JOB, attempt, SANDBOX)
    assert [event.seq for event in own(store).jobs.events_after(JOB, 0)] == [1, 2, 3]
    assert [event.seq for event in own(store).jobs.events_after(JOB, 2)] == [3]
    assert [event.seq for event in own(store).jobs.events_after(JOB, 0, limit=2)] == [1, 2]
    assert own(store).jobs.events_after(JOB, 3) == ()


def test_an_event_tells_what_happened(store: Store) -> None:
    attempt = begun(store)
    progress(store, attempt, 7)
    assert own(store).jobs.events_after(JOB, 2)[0].data == {
        "stage": "tune",
        "done": 7,
        "total": 100,
        "detail": "",
        "estimate": None,
    }


def test_the_data_of_every_event_is_documented(store: Store) -> None:
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    documented = {cells[1].strip(" `"): set(re.findall("`([^`]+)`", cells[2])) for cells in rows}
    attempt = begun(store)
    store.jobs.confined(JOB, attempt, SANDBOX)
    store.jobs.stage_started(JOB, attempt, Stage.TUNE)
    progress(store, attempt, 7)
    store.jobs.stage_finished(JOB, attempt, StageTime(stage=Stage.TUNE, seconds=1))
    store.jobs.publish(JOB, attempt, TARGET, FIGURES, ARTIFACTS)
    store.jobs.succeed(JOB, attempt, TARGET, True, FIGURES, ARTIFACTS)
    store.jobs.fail("job-failed", begun(store, "job-failed"), a_problem(), ARTIFACTS)
    store.jobs.cancel_finished("job-cancelled", begun(store, "job-cancelled"))
    events = [
        event
        for job_id in (JOB, "job-failed", "job-cancelled")
        for event in own(store).jobs.events_after(job_id, 0)
    ]
    assert {event.type for event in events} == set(EventType)
    for event in events:
        assert set(event.data) <= documented[event.type], event.type


def test_concurrent_writers_leave_neither_gap_nor_repeat(store: Store) -> None:
    attempt = begun(store)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda done: progress(store, attempt, done), range(60)))
    events = own(store).jobs.events_after(JOB, 0)
    assert [event.seq for event in events] == list(range(1, 63))
    assert {event.data["done"] for event in events[2:]} == set(range(60))


def test_a_follower_sees_every_event_once_while_they_are_written(store: Store) -> None:
    attempt = begun(store)
    written = Flag()
    seen: list[int] = []

    def follow() -> None:
        last = False
        while not last:
            last = written.is_set()
            seen.extend(
                event.seq for event in own(store).jobs.events_after(JOB, seen[-1] if seen else 0, limit=3)
            )

    with ThreadPoolExecutor(3) as pool:
        follower = pool.submit(follow)
        list(pool.map(lambda done: progress(store, attempt, done), range(40)))
        written.set()
        follower.result()
    while newer := own(store).jobs.events_after(JOB, seen[-1]):
        seen.extend(event.seq for event in newer)
    assert seen == list(range(1, 43))
