"""Jobs: submission, ownership, the moves between states."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest
from store_samples import ARTIFACTS, FIGURES, SANDBOX, TARGET, a_problem, a_request, a_worker

from bessemer.contract.job import Compilation, EventType, JobState, Progress
from bessemer.contract.report import StageTime
from bessemer.contract.stage import Stage
from bessemer.contract.target import MAX_FEATURES, MAX_FEATURES_CHARACTERS, ExplicitTarget
from bessemer.store.errors import FencedError, IdempotencyConflictError
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.rows.jobs import Jobs
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store

JOB = "job-00000001"

OWNERS_MOVES: dict[str, Callable[[Jobs, int], object]] = {
    "confined": lambda jobs, attempt: jobs.confined(JOB, attempt, SANDBOX),
    "stage_started": lambda jobs, attempt: jobs.stage_started(JOB, attempt, Stage.CAPTURE),
    "stage_finished": lambda jobs, attempt: jobs.stage_finished(
        JOB, attempt, StageTime(stage=Stage.CAPTURE, seconds=0.5)
    ),
    "progress": lambda jobs, attempt: jobs.progress(
        JOB, attempt, Progress(stage=Stage.TUNE, done=1, total=2)
    ),
    "succeed": lambda jobs, attempt: jobs.succeed(JOB, attempt, TARGET, True, FIGURES, ARTIFACTS),
    "fail": lambda jobs, attempt: jobs.fail(JOB, attempt, a_problem()),
    "cancel_finished": lambda jobs, attempt: jobs.cancel_finished(JOB, attempt),
    "cancel_requested": lambda jobs, attempt: jobs.cancel_requested(JOB, attempt),
}
ENDS = ("succeed", "fail", "cancel_finished")


def get(jobs: Jobs) -> Compilation:
    job = jobs.get(JOB)
    assert job is not None
    return job


def event_types(jobs: Jobs) -> list[EventType]:
    return [event.type for event in jobs.events_after(JOB, 0)]


def test_a_submitted_job_is_queued_with_its_request_and_an_event(jobs: Jobs) -> None:
    job = jobs.submit(JOB, a_request())
    assert (job.id, job.state, job.request, job.attempt) == (JOB, JobState.QUEUED, a_request(), 0)
    assert get(jobs) == job
    assert event_types(jobs) == [EventType.QUEUED]


def test_an_unknown_job_is_none(jobs: Jobs) -> None:
    assert jobs.get(JOB) is None
    assert jobs.request_cancel(JOB) is None
    assert jobs.start(JOB, "worker") is None
    assert jobs.events_after(JOB, 0) == ()


def test_the_same_submission_again_gives_the_same_job(jobs: Jobs) -> None:
    first = jobs.submit(JOB, a_request())
    assert jobs.submit(JOB, a_request()) == first
    assert event_types(jobs) == [EventType.QUEUED]


def test_another_request_under_the_same_id_is_refused(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request(cores=1))
    with pytest.raises(IdempotencyConflictError):
        jobs.submit(JOB, a_request(cores=2))


def test_another_tenants_id_is_refused(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request(), tenant="one")
    with pytest.raises(IdempotencyConflictError):
        jobs.submit(JOB, a_request(), tenant="two")


def test_submissions_at_the_same_moment_make_one_job(jobs: Jobs) -> None:
    barrier = Barrier(4)

    def submit(_: int) -> Compilation:
        barrier.wait()
        return jobs.submit(JOB, a_request())

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(submit, range(4)))
    assert len({result.created_at for result in results}) == 1
    assert event_types(jobs) == [EventType.QUEUED]


def test_a_job_runs_through_all_its_moves(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    assert jobs.start(JOB, "worker-1") == 1
    jobs.confined(JOB, 1, SANDBOX)
    jobs.stage_started(JOB, 1, Stage.CAPTURE)
    jobs.stage_finished(JOB, 1, StageTime(stage=Stage.CAPTURE, seconds=0.5))
    jobs.stage_started(JOB, 1, Stage.TUNE)
    progress = Progress(stage=Stage.TUNE, done=1, total=64, detail="dense")
    jobs.progress(JOB, 1, progress)
    running = get(jobs)
    assert (running.state, running.stage, running.progress) == (JobState.RUNNING, Stage.TUNE, progress)
    assert (running.worker, running.attempt, running.sandbox) == ("worker-1", 1, SANDBOX)
    jobs.stage_finished(JOB, 1, StageTime(stage=Stage.TUNE, seconds=1.5))
    jobs.succeed(JOB, 1, TARGET, True, FIGURES, ARTIFACTS)
    job = get(jobs)
    assert job.state is JobState.SUCCEEDED
    assert (job.target, job.verified, job.figures, job.artifacts) == (TARGET, True, FIGURES, ARTIFACTS)
    assert [stage.seconds for stage in job.stages] == [0.5, 1.5]
    assert job.started_at is not None and job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    assert job.created_at.tzinfo is not None
    assert event_types(jobs) == [
        EventType.QUEUED,
        EventType.STARTED,
        EventType.CONFINED,
        EventType.STAGE_STARTED,
        EventType.STAGE_FINISHED,
        EventType.STAGE_STARTED,
        EventType.PROGRESS,
        EventType.STAGE_FINISHED,
        EventType.SUCCEEDED,
    ]


def test_a_failed_job_keeps_its_problem_and_what_it_made(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    jobs.start(JOB, "worker")
    problem = a_problem("a name with \x00, \ud800 and ☃")
    jobs.fail(JOB, 1, problem, ARTIFACTS)
    job = get(jobs)
    assert (job.state, job.problem, job.artifacts) == (JobState.FAILED, problem, ARTIFACTS)


def test_a_running_job_is_asked_to_stop(jobs: Jobs, store: Store) -> None:
    jobs.submit(JOB, a_request())
    store.workers.beat(a_worker("worker"))
    jobs.start(JOB, "worker")
    assert not jobs.cancel_requested(JOB, 1)
    asked = jobs.request_cancel(JOB)
    assert asked is not None and asked.state is JobState.RUNNING
    assert jobs.cancel_requested(JOB, 1)
    jobs.cancel_finished(JOB, 1)
    assert get(jobs).state is JobState.CANCELLED


def test_a_final_job_is_left_as_it_is_by_a_cancel(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    jobs.start(JOB, "worker")
    jobs.fail(JOB, 1, a_problem())
    before = get(jobs)
    assert jobs.request_cancel(JOB) == before
    assert event_types(jobs)[-1] is EventType.FAILED


def test_a_lost_workers_job_is_taken_over_from_its_beginning(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    jobs.start(JOB, "worker-1")
    jobs.confined(JOB, 1, SANDBOX)
    jobs.stage_finished(JOB, 1, StageTime(stage=Stage.CAPTURE, seconds=0.5))
    assert jobs.start(JOB, "worker-2") == 2
    job = get(jobs)
    assert (job.attempt, job.worker, job.stages, job.sandbox) == (2, "worker-2", (), None)
    assert jobs.events_after(JOB, 4)[0].data == {"attempt": 2, "worker": "worker-2", "lost_attempts": 1}


def test_the_workers_that_lost_an_attempt_are_known_and_no_others(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    assert jobs.lost_workers(JOB) == ()
    for attempt, worker in enumerate(("stopped", "lost", "full", "lost", "gone", "last"), start=1):
        assert jobs.start(JOB, worker) == attempt
        if worker in ("stopped", "full"):
            jobs.hand_back(JOB, attempt)
    assert jobs.lost_workers(JOB) == ("lost", "lost", "gone")
    assert get(jobs).lost_attempts == 3


@pytest.mark.parametrize("move", OWNERS_MOVES)
def test_a_worker_that_lost_its_job_is_fenced_out(jobs: Jobs, move: str) -> None:
    jobs.submit(JOB, a_request())
    jobs.start(JOB, "worker-1")
    jobs.start(JOB, "worker-2")
    before = get(jobs)
    with pytest.raises(FencedError):
        OWNERS_MOVES[move](jobs, 1)
    assert get(jobs) == before
    assert len(event_types(jobs)) == 3


@pytest.mark.parametrize("move", OWNERS_MOVES)
@pytest.mark.parametrize("end", ENDS)
def test_a_final_job_stays_as_it_ended(jobs: Jobs, move: str, end: str) -> None:
    jobs.submit(JOB, a_request())
    jobs.start(JOB, "worker")
    OWNERS_MOVES[end](jobs, 1)
    before = get(jobs)
    with pytest.raises(FencedError):
        OWNERS_MOVES[move](jobs, 1)
    assert get(jobs) == before
    assert jobs.start(JOB, "worker") is None


def test_the_most_that_a_target_may_need_can_be_stored_and_queued(
    store: Store, settings: StoreSettings
) -> None:
    letters = random.Random(1)
    share = MAX_FEATURES_CHARACTERS // MAX_FEATURES - 1
    features = tuple(f"+{letters.randbytes(share).hex()[:share]}" for _ in range(MAX_FEATURES))
    target = ExplicitTarget(mcpu="m" * 64, triple="t" * 64, features=features)
    store.jobs.submit(JOB, a_request().model_copy(update={"target": target}))
    task = store.jobs.task(JOB)
    assert task is not None
    with closing(open_queue(settings)) as queue:
        queue.enqueue(task)


def test_of_two_ends_at_the_same_moment_one_holds(jobs: Jobs) -> None:
    for round_ in range(5):
        job_id = f"job-race-{round_}"
        jobs.submit(job_id, a_request())
        jobs.start(job_id, "worker")
        barrier = Barrier(2)

        def succeed(job_id: str = job_id, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return _holds(lambda: jobs.succeed(job_id, 1, TARGET, True, FIGURES, ARTIFACTS))

        def fail(job_id: str = job_id, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return _holds(lambda: jobs.fail(job_id, 1, a_problem()))

        with ThreadPoolExecutor(2) as pool:
            succeeded, failed = pool.submit(succeed), pool.submit(fail)
        assert succeeded.result() != failed.result()
        ends = [event for event in jobs.events_after(job_id, 0) if event.type.final]
        assert [event.seq for event in ends] == [3]


def _holds(end: Callable[[], None]) -> bool:
    try:
        end()
    except FencedError:
        return False
    return True


def test_takeovers_at_the_same_moment_each_get_an_attempt_of_their_own(jobs: Jobs) -> None:
    jobs.submit(JOB, a_request())
    with ThreadPoolExecutor(4) as pool:
        attempts = list(pool.map(lambda worker: jobs.start(JOB, f"worker-{worker}"), range(8)))
    assert sorted(attempt for attempt in attempts if attempt) == list(range(1, 9))
