"""Events: numbers without gap or repeat, however many write and read."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event as Flag

from store_samples import SANDBOX, a_request

from bessemer.contract.job import Progress
from bessemer.contract.stage import Stage
from bessemer.store.jobs import Jobs

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
