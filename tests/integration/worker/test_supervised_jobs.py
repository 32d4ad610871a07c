"""What becomes of a job's row, and of its processes, however the job ends."""

import asyncio
import fcntl
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from worker_samples import groups_noted, members, submit, upload, wait_until

from bessemer.bundle.manifest import REPORT
from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ERRORS, ErrorCode
from bessemer.contract.report import Report
from bessemer.contract.stage import Stage
from bessemer.contract.target import MAX_CORES
from bessemer.store.queue_port import Loss, TaskKind
from bessemer.store.rows.lifecycle import Attempt
from bessemer.telemetry.traces import Tracer
from tests.tenant_data import inspection_of, own, started
from worker.supervisor.attempts import run_to_end
from worker.supervisor.compilations import CompilationTask
from worker.supervisor.in_flight import InFlight
from worker.supervisor.job_runner import JobRunner
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.retry import MAX_LOST_ATTEMPTS

Rig = Any
SLEEP = "import time\ntime.sleep({seconds})"
FORK_AND_SLEEP = """
    import time
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(600)
"""
SAY = """
    import gc
    teller = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Sender")
    os.write(teller.descriptor, {line!r})
    os._exit(0)
"""


def test_cancelling_a_running_compilation_ends_its_processes_and_its_row(rig: Rig) -> None:
    task = rig.job(FORK_AND_SLEEP)
    groups: list[int] = []
    left: list[int] = []

    def cancel() -> None:
        groups.extend(groups_noted(rig.place.folder))
        own(rig.store).jobs.request_cancel(task.id)
        wait_until(lambda: rig.row(task).state is JobState.CANCELLED)
        left.append(members(groups[0]))

    row = rig.handle_while(task, cancel)
    assert row.state is JobState.CANCELLED
    assert (len(groups), left) == (1, [0])
    assert not groups_noted(rig.place.folder)
    assert not tuple(rig.place.jobs.iterdir())


def test_what_a_job_printed_is_kept_though_it_never_ends(rig: Rig) -> None:
    task = rig.job("os.write(1, b'before the end')\n" + SLEEP.format(seconds=600), 3.0)
    assert rig.handle(task).state is JobState.FAILED
    assert "before the end" in own(rig.store).jobs.log_tail(task.id)


PRINT = "while True:\n    os.write(1, bytes(65536))"


@pytest.mark.parametrize(
    ("body", "timeout_seconds", "settings", "code"),
    [
        (SLEEP.format(seconds=600), 3.0, {}, ErrorCode.TIMEOUT),
        (SLEEP.format(seconds=600), None, {"limit_wall_seconds": 3.0}, ErrorCode.LIMIT_WALL_CLOCK),
        (PRINT, None, {"limit_output_bytes": 1 << 20}, ErrorCode.LIMIT_OUTPUT),
        ("os._exit(3)", None, {}, ErrorCode.CHILD_CRASHED),
        ("os.kill(os.getpid(), 40)", None, {}, ErrorCode.CHILD_CRASHED),
    ],
    ids=["timeout", "wall clock", "output", "exit", "real-time signal"],
)
def test_the_row_says_how_a_job_ended(
    rig: Rig, body: str, timeout_seconds: float | None, settings: dict[str, Any], code: ErrorCode
) -> None:
    row = rig.handle(rig.job(body, timeout_seconds), **settings)
    assert row.state is JobState.FAILED
    assert row.problem.code is code
    assert row.problem.stage == "capture"
    assert row.sandbox.complete


@pytest.mark.parametrize("code", ["cancelled", "worker-lost", "internal"])
def test_a_child_that_claims_another_fate_has_misbehaved(rig: Rig, code: str) -> None:
    line = f'{{"kind": "failed", "code": "{code}", "detail": "pay here"}}\n'.encode()
    row = rig.handle(rig.job(SAY.format(line=line)))
    assert row.state is JobState.FAILED
    assert row.problem.code is ErrorCode.CHILD_MISBEHAVED
    assert row.problem.advice == ERRORS[ErrorCode.CHILD_MISBEHAVED].advice


def lost_attempts(metrics: WorkerMetrics) -> dict[Loss, float]:
    """How many attempts at compilations were lost, by reason."""
    labels = {reason: {"kind": TaskKind.COMPILE, "reason": reason} for reason in Loss}
    sample = metrics.registry.get_sample_value
    counts = {reason: sample("bessemer_attempts_lost_total", labels[reason]) or 0.0 for reason in Loss}
    return {reason: count for reason, count in counts.items() if count}


def test_a_job_whose_zygote_is_killed_is_done_on_the_next_attempt(rig: Rig) -> None:
    task, metrics = rig.job(SLEEP.format(seconds=1)), WorkerMetrics()
    counted = replace(rig, metrics=metrics)
    row = counted.handle_while(task, lambda: os.kill(rig.zygote.pid, signal.SIGKILL))
    assert (row.state, row.attempt, row.verified) == (JobState.SUCCEEDED, 2, True)
    assert lost_attempts(metrics) == {Loss.ZYGOTE_LOST: 1}
    assert not groups_noted(rig.place.folder)


@pytest.mark.slow
def test_an_inspection_whose_zygote_is_killed_is_tried_again(rig: Rig) -> None:
    digest = upload(rig.store, rig.folder, SLEEP.format(seconds=1.5))
    size_bytes = own(rig.store).artifacts.size(digest)
    own(rig.store).models.add(digest, size_bytes)

    async def inspect() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.supervisor().handle(inspection_of(rig.store, digest)))
            await asyncio.to_thread(wait_until, lambda: bool(groups_noted(rig.place.folder)))
            os.kill(rig.zygote.pid, signal.SIGKILL)

    rig.runner.run(inspect())
    assert own(rig.store).models.get(digest).state is ModelState.READY


def test_a_target_with_more_cores_than_the_machine_is_measured_with_those_that_there_are(rig: Rig) -> None:
    here = len(os.sched_getaffinity(0))
    digest = upload(rig.store, rig.folder, "return 0")
    row = rig.handle(submit(rig.store, "many-cores", digest, cores=MAX_CORES))
    assert (row.state, row.verified, row.target.cores) == (JobState.SUCCEEDED, True, MAX_CORES)
    assert {baseline.threads for baseline in row.figures.baselines} <= {1, here}
    (report,) = (artifact for artifact in row.artifacts if artifact.name == REPORT)
    text = b"".join(own(rig.store).artifacts.stream(report.digest))
    assert Report.model_validate_json(text).benchmark.threads == here


def test_a_fault_of_ours_names_the_attempt_and_the_log(rig: Rig) -> None:
    task = rig.job("return 0")
    in_the_way = rig.place.jobs / task.id
    in_the_way.mkdir()
    row = rig.handle(task)
    in_the_way.rmdir()
    assert row.problem.code is ErrorCode.INTERNAL
    assert row.problem.detail == f"FileExistsError in the supervisor during attempt 1 of job {task.id}"
    assert rig.supervisor().worker_id in row.problem.advice


def test_a_job_that_somebody_kills_from_outside_is_done_on_the_next_attempt(rig: Rig) -> None:
    task = rig.job(SLEEP.format(seconds=1))
    row = rig.handle_while(task, lambda: os.kill(groups_noted(rig.place.folder)[0], signal.SIGKILL))
    assert (row.state, row.attempt, row.lost_attempts) == (JobState.SUCCEEDED, 2, 1)
    assert not groups_noted(rig.place.folder)


def test_a_job_that_is_killed_on_every_attempt_is_given_up(rig: Rig) -> None:
    row = rig.handle(rig.job("os.kill(os.getpid(), 9)"))
    assert (row.state, row.attempt, row.lost_attempts) == (JobState.FAILED, 3, 2)
    assert row.problem.code is ErrorCode.CHILD_KILLED


def test_a_job_whose_candidate_server_is_killed_is_done_on_the_next_attempt(rig: Rig) -> None:
    task = rig.job(SLEEP.format(seconds=1))
    row = rig.handle_while(task, lambda: os.kill(candidate_server(rig), signal.SIGKILL))
    assert (row.state, row.attempt, row.lost_attempts) == (JobState.SUCCEEDED, 2, 1)


def candidate_server(rig: Rig) -> int:
    (child,) = groups_noted(rig.place.folder)
    (server,) = Path(f"/proc/{child}/task/{child}/children").read_text().split()
    return int(server)


def test_a_job_that_cost_three_workers_is_a_dead_letter_with_their_names(rig: Rig) -> None:
    task = rig.job("return 0")
    for worker in ("w1", "w2", "w1"):
        started(rig.store.jobs, task.id, worker)
    row = rig.handle(task)
    assert (row.state, row.attempt, row.lost_attempts) == (JobState.FAILED, 4, 3)
    assert row.problem.code is ErrorCode.WORKER_LOST
    assert row.problem.detail == "3 attempts were lost with their workers (w1, w2, w1)"
    assert [event.seq for event in own(rig.store).jobs.events_after(task.id, 0)] == [1, 2, 3, 4, 5, 6]


def test_an_inspection_that_cost_three_workers_is_given_up(rig: Rig) -> None:
    digest = upload(rig.store, rig.folder, "return 'unseen'")
    own(rig.store).models.add(digest, own(rig.store).artifacts.size(digest))
    for worker in ("w1", "w2", "w1"):
        started(rig.store.models, inspection_of(rig.store, digest).id, worker)
    rig.runner.run(rig.supervisor().handle(inspection_of(rig.store, digest)))
    model = own(rig.store).models.get(digest)
    assert (model.state, model.problem.code) == (ModelState.REJECTED, ErrorCode.WORKER_LOST)


class CancelledMeanwhile(CompilationTask):
    """One that its user cancels when it has just been taken for the last time."""

    def lost_attempts(self, claim: Attempt) -> int:
        own(self._runner.store).jobs.request_cancel(self._id)
        return MAX_LOST_ATTEMPTS


def test_a_job_that_was_to_be_cancelled_is_so_where_it_would_be_given_up(rig: Rig) -> None:
    task = rig.job("return 0")
    bench = JobRunner(rig.settings(), rig.store, rig.place, rig.zygote, WorkerMetrics())
    rig.runner.run(run_to_end(CancelledMeanwhile(task, bench, InFlight(), Tracer(), None), bench))
    row = rig.row(task)
    assert (row.state, row.attempt, row.problem) == (JobState.CANCELLED, 1, None)


def test_a_job_that_another_worker_has_taken_is_ended_here_at_once(rig: Rig) -> None:
    task, metrics = rig.job(SLEEP.format(seconds=600)), WorkerMetrics()
    counted = replace(rig, metrics=metrics)
    row = counted.handle_while(task, lambda: rig.store.jobs.start(task.id, "another"))
    assert (row.state, row.attempt, row.worker) == (JobState.RUNNING, 2, "another")
    assert lost_attempts(metrics) == {Loss.FENCED: 1}
    assert not groups_noted(rig.place.folder)
    assert not tuple(rig.place.jobs.iterdir())


def test_a_job_that_its_worker_stops_in_is_handed_back_and_not_lost(rig: Rig) -> None:
    task = rig.job(SLEEP.format(seconds=600))

    async def stop() -> None:
        handling = asyncio.create_task(rig.supervisor().handle(task))
        await asyncio.to_thread(wait_until, lambda: rig.row(task).stage is not None)
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling

    rig.runner.run(stop())
    assert (rig.row(task).state, rig.row(task).worker) == (JobState.RUNNING, None)
    assert not groups_noted(rig.place.folder)
    started(rig.store.jobs, task.id, "another")
    assert rig.row(task).lost_attempts == 0


def test_a_job_measures_only_in_its_turn_and_is_built_before(rig: Rig, tmp_path: Path) -> None:
    lock = tmp_path / "measuring"
    task = rig.job("return 0")
    finished: list[Stage] = []

    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def stages_until_the_turn() -> None:
            wait_until(lambda: rig.row(task).stage is Stage.BENCHMARK)
            time.sleep(0.5)  # what does not wait is done with it by then
            finished.extend(entry.stage for entry in rig.row(task).stages)
            fcntl.flock(other, fcntl.LOCK_UN)

        row = rig.handle_while(task, stages_until_the_turn, measuring_lock=lock)
    assert finished[-1] is Stage.VERIFY
    assert row.state is JobState.SUCCEEDED
