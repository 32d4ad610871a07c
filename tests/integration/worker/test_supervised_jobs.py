"""What becomes of a job's row, and of its processes, however the job ends."""

import asyncio
import os
import signal
from typing import Any

import pytest
from worker_samples import groups_noted, members, upload, wait_until

from bessemer.contract.job import JobState
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ERRORS, ErrorCode
from bessemer.store.queue import Task, TaskKind

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
    teller = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Teller")
    os.write(teller.descriptor, {line!r})
    os._exit(0)
"""


def test_cancelling_a_running_compilation_ends_its_processes_and_its_row(rig: Rig) -> None:
    task = rig.job(FORK_AND_SLEEP)
    groups: list[int] = []

    def cancel() -> None:
        groups.extend(groups_noted(rig.place.folder))
        rig.store.jobs.request_cancel(task.id)

    row = rig.handle_while(task, cancel)
    assert row.state is JobState.CANCELLED
    assert len(groups) == 1
    assert members(groups[0]) == 0
    assert not groups_noted(rig.place.folder)
    assert not tuple(rig.place.jobs.iterdir())


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


def test_a_job_whose_zygote_is_killed_is_done_on_the_next_attempt(rig: Rig) -> None:
    task = rig.job(SLEEP.format(seconds=1))
    row = rig.handle_while(task, lambda: os.kill(rig.zygote.pid, signal.SIGKILL))
    assert (row.state, row.attempt, row.verified) == (JobState.SUCCEEDED, 2, True)
    assert not groups_noted(rig.place.folder)


def test_an_inspection_whose_zygote_is_killed_is_tried_again(rig: Rig) -> None:
    digest = upload(rig.store, rig.folder, SLEEP.format(seconds=1.5))
    size_bytes = rig.store.artifacts.size(digest)
    rig.store.models.add(digest, size_bytes)

    async def inspect() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.supervisor().handle(Task(TaskKind.INSPECT, digest)))
            await asyncio.to_thread(wait_until, lambda: bool(groups_noted(rig.place.folder)))
            os.kill(rig.zygote.pid, signal.SIGKILL)

    rig.runner.run(inspect())
    assert rig.store.models.get(digest).state is ModelState.READY


def test_a_fault_of_ours_names_the_attempt_and_the_log(rig: Rig) -> None:
    task = rig.job("return 0")
    in_the_way = rig.place.jobs / task.id
    in_the_way.mkdir()
    row = rig.handle(task)
    in_the_way.rmdir()
    assert row.problem.code is ErrorCode.INTERNAL
    assert row.problem.detail == f"FileExistsError in the supervisor on attempt 1 of job {task.id}"
    assert rig.supervisor().worker_id in row.problem.advice
