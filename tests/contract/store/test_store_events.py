"""Events: numbers without gap or repeat, however many write and read."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event as Flag

from store_samples import ARTIFACTS, FIGURES, SANDBOX, TARGET, a_problem, a_request

from bessemer.contract.job import EventType, Progress
from bessemer.contract.report import StageTime
from bessemer.contract.stage import Stage
from bessemer.store.rows.jobs import Jobs

JOB = "job-00000001"


def started(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    jobs.start(JOB, "worker")


def progress(jobs: Jobs, done: int) -> None:
    jobs.progress(JOB, 1, Progress(stage=Stage.TUNE, done=done, total=100))


def test_events_follow_one_another_from_any_number(jobs: Jobs) -> None:
    started(jobs)
    jobs.confined(JOB, 1, SANDBOX)
    assert [event.seq for event in jobs.events_after(JOB, 0)] == [1, 2, 3]
    assert [event.seq for event in jobs.events_after(JOB, 2)] == [3]
    assert [event.seq for event in jobs.events_after(JOB, 0, limit=2)] == [1, 2]
    assert jobs.events_after(JOB, 3) == ()


def test_an_event_tells_what_happened(jobs: Jobs) -> None:
    started(jobs)
    progress(jobs, 7)
    assert jobs.events_after(JOB, 2)[0].data == {"stage": "tune", "done": 7, "total": 100, "detail": ""}


def test_the_data_of_every_event_is_documented(jobs: Jobs) -> None:
    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    documented = {cells[1].strip(" `"): set(re.findall("`([^`]+)`", cells[2])) for cells in rows}
    started(jobs)
    jobs.confined(JOB, 1, SANDBOX)
    jobs.stage_started(JOB, 1, Stage.TUNE)
    progress(jobs, 7)
    jobs.stage_finished(JOB, 1, StageTime(stage=Stage.TUNE, seconds=1))
    jobs.succeed(JOB, 1, TARGET, True, FIGURES, ARTIFACTS)
    for job_id in ("job-failed", "job-cancelled"):
        jobs.submit(job_id, a_request())
        jobs.start(job_id, "worker")
    jobs.fail("job-failed", 1, a_problem(), ARTIFACTS)
    jobs.cancel_finished("job-cancelled", 1)
    events = [
        event for job_id in (JOB, "job-failed", "job-cancelled") for event in jobs.events_after(job_id, 0)
    ]
    assert {event.type for event in events} == set(EventType)
    for event in events:
        assert set(event.data) <= documented[event.type], event.type


def test_concurrent_writers_leave_neither_gap_nor_repeat(jobs: Jobs) -> None:
    started(jobs)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda done: progress(jobs, done), range(60)))
    events = jobs.events_after(JOB, 0)
    assert [event.seq for event in events] == list(range(1, 63))
    assert {event.data["done"] for event in events[2:]} == set(range(60))


def test_a_follower_sees_every_event_once_while_they_are_written(jobs: Jobs) -> None:
    started(jobs)
    written = Flag()
    seen: list[int] = []

    def follow() -> None:
        last = False
        while not last:
            last = written.is_set()
            seen.extend(event.seq for event in jobs.events_after(JOB, seen[-1] if seen else 0, limit=3))

    with ThreadPoolExecutor(3) as pool:
        follower = pool.submit(follow)
        list(pool.map(lambda done: progress(jobs, done), range(40)))
        written.set()
        follower.result()
    while newer := jobs.events_after(JOB, seen[-1]):
        seen.extend(event.seq for event in newer)
    assert seen == list(range(1, 43))
