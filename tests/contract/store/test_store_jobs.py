"""Jobs: submission, ownership, the moves between states."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from store_samples import ARTIFACTS, FIGURES, SANDBOX, TARGET, a_problem, a_request, a_worker

from bessemer.contract.job import Artifact, Compilation, EventType, JobState, Progress
from bessemer.contract.report import StageTime
from bessemer.contract.stage import Stage
from bessemer.contract.target import MAX_FEATURES, MAX_FEATURES_CHARACTERS, ExplicitTarget
from bessemer.store.errors import FencedError, IdempotencyConflictError
from bessemer.store.queue_port import Queue
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import Store
from tests.tenant_data import own, started

JOB = "job-00000001"

OWNERS_MOVES: dict[str, Callable[[Store, Attempt], object]] = {
    "confined": lambda store, attempt: store.jobs.confined(JOB, attempt, SANDBOX),
    "stage_started": lambda store, attempt: store.jobs.stage_started(JOB, attempt, Stage.CAPTURE),
    "stage_finished": lambda store, attempt: store.jobs.stage_finished(
        JOB, attempt, StageTime(stage=Stage.CAPTURE, seconds=0.5)
    ),
    "progress": lambda store, attempt: store.jobs.progress(
        JOB, attempt, Progress(stage=Stage.TUNE, done=1, total=2)
    ),
    "publish": lambda store, attempt: store.jobs.publish(JOB, attempt, TARGET, FIGURES, ARTIFACTS),
    "succeed": lambda store, attempt: store.jobs.succeed(JOB, attempt, TARGET, True, FIGURES, ARTIFACTS),
    "fail": lambda store, attempt: store.jobs.fail(JOB, attempt, a_problem()),
    "cancel_finished": lambda store, attempt: store.jobs.cancel_finished(JOB, attempt),
    "cancel_requested": lambda store, attempt: store.jobs.cancel_requested(JOB, attempt),
}
ENDS = ("succeed", "fail", "cancel_finished")


def get(store: Store) -> Compilation:
    job = own(store).jobs.get(JOB)
    assert job is not None
    return job


def event_types(store: Store) -> list[EventType]:
    return [event.type for event in own(store).jobs.events_after(JOB, 0)]


def test_a_submitted_job_is_queued_with_its_request_and_an_event(store: Store) -> None:
    job = own(store).jobs.submit(JOB, a_request())
    assert (job.id, job.state, job.request, job.attempt) == (JOB, JobState.QUEUED, a_request(), 0)
    assert get(store) == job
    assert event_types(store) == [EventType.QUEUED]


def test_an_unknown_job_is_none(store: Store) -> None:
    assert own(store).jobs.get(JOB) is None
    assert own(store).jobs.request_cancel(JOB) is None
    assert store.jobs.start(JOB, "worker") is None
    assert own(store).jobs.events_after(JOB, 0) == ()


def test_the_same_submission_again_gives_the_same_job(store: Store) -> None:
    first = own(store).jobs.submit(JOB, a_request())
    assert own(store).jobs.submit(JOB, a_request()) == first
    assert event_types(store) == [EventType.QUEUED]


def test_another_request_under_the_same_id_is_refused(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request(cores=1))
    with pytest.raises(IdempotencyConflictError):
        own(store).jobs.submit(JOB, a_request(cores=2))


def test_another_tenants_id_is_refused(store: Store) -> None:
    store.for_tenant("one").jobs.submit(JOB, a_request())
    with pytest.raises(IdempotencyConflictError):
        store.for_tenant("two").jobs.submit(JOB, a_request())


def test_submissions_at_the_same_moment_make_one_job(store: Store) -> None:
    barrier = Barrier(4)

    def submit(_: int) -> Compilation:
        barrier.wait()
        return own(store).jobs.submit(JOB, a_request())

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(submit, range(4)))
    assert len({result.created_at for result in results}) == 1
    assert event_types(store) == [EventType.QUEUED]


BUNDLE = Artifact(name="bundle.tar.zst", digest="a" * 64, size_bytes=10, media_type="application/zstd")
BETTER = BUNDLE.model_copy(update={"digest": "b" * 64, "size_bytes": 12})
LOG_FILE = Artifact(name="log.txt", digest="c" * 64, size_bytes=1, media_type="text/plain")


def published(store: Store) -> Attempt:
    """A running job whose second bundle has replaced the first."""
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker-1")
    store.jobs.publish(JOB, attempt, TARGET, FIGURES, (BUNDLE,))
    assert get(store).artifacts == (BUNDLE,)
    store.jobs.publish(JOB, attempt, TARGET, FIGURES, (BETTER,))
    return attempt


def test_a_bundle_published_early_replaces_the_one_before_it(store: Store) -> None:
    published(store)
    job = get(store)
    assert (job.state, job.artifacts, job.figures) == (JobState.RUNNING, (BETTER,), None)
    assert job.target == TARGET
    assert event_types(store)[-2:] == [EventType.PUBLISHED] * 2
    event = own(store).jobs.events_after(JOB, 0)[-1]
    assert [file["digest"] for file in event.data["artifacts"]] == [BETTER.digest]
    assert event.data["figures"]["latency"] == FIGURES.latency.model_dump(mode="json")


def test_a_job_that_fails_later_keeps_the_bundle_it_published(store: Store) -> None:
    attempt = published(store)
    store.jobs.fail(JOB, attempt, a_problem(), (LOG_FILE,))
    assert (get(store).artifacts, get(store).target) == ((BETTER, LOG_FILE), TARGET)


def test_a_job_that_is_cancelled_or_lost_later_keeps_the_bundle_it_published(store: Store) -> None:
    attempt = published(store)
    started(store.jobs, JOB, "worker-2")
    assert get(store).artifacts == (BETTER,)
    with pytest.raises(FencedError):
        store.jobs.publish(JOB, attempt, TARGET, FIGURES, (BUNDLE,))
    own(store).jobs.request_cancel(JOB)
    assert get(store).artifacts == (BETTER,)


def test_the_last_bundle_replaces_those_published_early(store: Store) -> None:
    attempt = published(store)
    store.jobs.succeed(JOB, attempt, TARGET, True, FIGURES, (BETTER, LOG_FILE))
    assert (get(store).artifacts, get(store).target) == ((BETTER, LOG_FILE), TARGET)


def test_a_job_runs_through_all_its_moves(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker-1")
    store.jobs.confined(JOB, attempt, SANDBOX)
    store.jobs.stage_started(JOB, attempt, Stage.CAPTURE)
    store.jobs.stage_finished(JOB, attempt, StageTime(stage=Stage.CAPTURE, seconds=0.5))
    store.jobs.stage_started(JOB, attempt, Stage.TUNE)
    progress = Progress(stage=Stage.TUNE, done=1, total=64, detail="dense")
    store.jobs.progress(JOB, attempt, progress)
    running = get(store)
    assert (running.state, running.stage, running.progress) == (JobState.RUNNING, Stage.TUNE, progress)
    assert (running.worker, running.attempt, running.sandbox) == ("worker-1", 1, SANDBOX)
    store.jobs.stage_finished(JOB, attempt, StageTime(stage=Stage.TUNE, seconds=1.5))
    store.jobs.succeed(JOB, attempt, TARGET, True, FIGURES, ARTIFACTS)
    job = get(store)
    assert job.state is JobState.SUCCEEDED
    assert (job.target, job.verified, job.figures, job.artifacts) == (TARGET, True, FIGURES, ARTIFACTS)
    assert [stage.seconds for stage in job.stages] == [0.5, 1.5]
    assert job.started_at is not None and job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    assert job.created_at.tzinfo is not None
    assert event_types(store) == [
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


def test_a_failed_job_keeps_its_problem_and_what_it_made(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker")
    problem = a_problem("a name with \x00, \ud800 and ☃")
    store.jobs.fail(JOB, attempt, problem, ARTIFACTS)
    job = get(store)
    assert (job.state, job.problem, job.artifacts) == (JobState.FAILED, problem, ARTIFACTS)


def test_a_running_job_is_asked_to_stop(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    store.workers.beat(a_worker("worker"))
    attempt = started(store.jobs, JOB, "worker")
    assert not store.jobs.cancel_requested(JOB, attempt)
    asked = own(store).jobs.request_cancel(JOB)
    assert asked is not None and asked.state is JobState.RUNNING
    assert store.jobs.cancel_requested(JOB, attempt)
    store.jobs.cancel_finished(JOB, attempt)
    assert get(store).state is JobState.CANCELLED


def test_a_final_job_is_left_as_it_is_by_a_cancel(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker")
    store.jobs.fail(JOB, attempt, a_problem())
    before = get(store)
    assert own(store).jobs.request_cancel(JOB) == before
    assert event_types(store)[-1] is EventType.FAILED


def test_a_lost_workers_job_is_taken_over_from_its_beginning(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker-1")
    store.jobs.confined(JOB, attempt, SANDBOX)
    store.jobs.stage_finished(JOB, attempt, StageTime(stage=Stage.CAPTURE, seconds=0.5))
    assert started(store.jobs, JOB, "worker-2").number == 2
    job = get(store)
    assert (job.attempt, job.worker, job.stages, job.sandbox) == (2, "worker-2", (), None)
    assert own(store).jobs.events_after(JOB, 4)[0].data == {
        "attempt": 2,
        "worker": "worker-2",
        "lost_attempts": 1,
    }


def test_the_workers_that_lost_an_attempt_are_known_and_no_others(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    assert store.jobs.lost_workers(JOB) == ()
    for worker in ("stopped", "lost", "full", "lost", "gone", "last"):
        attempt = started(store.jobs, JOB, worker)
        if worker in ("stopped", "full"):
            store.jobs.hand_back(JOB, attempt)
    assert store.jobs.lost_workers(JOB) == ("lost", "lost", "gone")
    assert get(store).lost_attempts == 3


@pytest.mark.parametrize("move", OWNERS_MOVES)
def test_a_worker_that_lost_its_job_is_fenced_out(store: Store, move: str) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker-1")
    started(store.jobs, JOB, "worker-2")
    before = get(store)
    with pytest.raises(FencedError):
        OWNERS_MOVES[move](store, attempt)
    assert get(store) == before
    assert len(event_types(store)) == 3


@pytest.mark.parametrize("move", OWNERS_MOVES)
@pytest.mark.parametrize("end", ENDS)
def test_a_final_job_stays_as_it_ended(store: Store, move: str, end: str) -> None:
    own(store).jobs.submit(JOB, a_request())
    attempt = started(store.jobs, JOB, "worker")
    OWNERS_MOVES[end](store, attempt)
    before = get(store)
    with pytest.raises(FencedError):
        OWNERS_MOVES[move](store, attempt)
    assert get(store) == before
    assert store.jobs.start(JOB, "worker") is None


def test_the_most_that_a_target_may_need_can_be_stored_and_queued(store: Store, queue: Queue) -> None:
    letters = random.Random(1)
    share = MAX_FEATURES_CHARACTERS // MAX_FEATURES - 1
    features = tuple(f"+{letters.randbytes(share).hex()[:share]}" for _ in range(MAX_FEATURES))
    target = ExplicitTarget(mcpu="m" * 64, triple="t" * 64, features=features)
    own(store).jobs.submit(JOB, a_request().model_copy(update={"target": target}))
    task = own(store).jobs.task(JOB)
    assert task is not None
    queue.enqueue(task)


def test_of_two_ends_at_the_same_moment_one_holds(store: Store) -> None:
    for round_ in range(5):
        job_id = f"job-race-{round_}"
        own(store).jobs.submit(job_id, a_request())
        attempt = started(store.jobs, job_id, "worker")
        barrier = Barrier(2)

        def succeed(job_id: str = job_id, attempt: Attempt = attempt, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return _holds(lambda: store.jobs.succeed(job_id, attempt, TARGET, True, FIGURES, ARTIFACTS))

        def fail(job_id: str = job_id, attempt: Attempt = attempt, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return _holds(lambda: store.jobs.fail(job_id, attempt, a_problem()))

        with ThreadPoolExecutor(2) as pool:
            succeeded, failed = pool.submit(succeed), pool.submit(fail)
        assert succeeded.result() != failed.result()
        ends = [event for event in own(store).jobs.events_after(job_id, 0) if event.type.final]
        assert [event.seq for event in ends] == [3]


def _holds(end: Callable[[], None]) -> bool:
    try:
        end()
    except FencedError:
        return False
    return True


def test_takeovers_at_the_same_moment_each_get_an_attempt_of_their_own(store: Store) -> None:
    own(store).jobs.submit(JOB, a_request())
    with ThreadPoolExecutor(4) as pool:
        attempts = list(pool.map(lambda worker: store.jobs.start(JOB, f"worker-{worker}"), range(8)))
    assert sorted(attempt.number for attempt in attempts if attempt) == list(range(1, 9))
