"""What becomes of an invocation however its attempts end."""

import asyncio
import io
import itertools
import os
import signal
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from worker_samples import groups_noted, wait_until

from bessemer.contract.invocation import OUTPUTS, Invocation
from bessemer.contract.job import JobState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.sandbox import SandboxStatus
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.rows.tables import INVOCATIONS
from bessemer.telemetry.traces import open_tracer
from tests.integration.otlp_collector import collecting
from tests.tenant_data import own, started
from worker.supervisor.groups import Group, GroupsFile
from worker.supervisor.job_record import InvocationRecord
from worker.supervisor.supervisor import Supervisor

Rig = Any
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def compilation(rig: Rig) -> str:
    """One whose library takes what is negative from eight numbers."""
    row = rig.handle(rig.job("return 0"))
    assert row.state is JobState.SUCCEEDED
    return str(row.id)


def asked(rig: Rig, compilation: str) -> Task:
    """A queued invocation."""
    file = io.BytesIO()
    np.savez(file, input=np.linspace(-1, 1, 8, dtype=np.float32))
    path = rig.folder / "inputs.npz"
    path.write_bytes(file.getvalue())
    blob = own(rig.store).artifacts.put_file(path)
    invocation_id = f"invocation-{next(NUMBERS)}"
    own(rig.store).invocations.submit(invocation_id, compilation, blob.digest, blob.size_bytes, 0)
    return Task(TaskKind.INVOKE, invocation_id)


def handled(rig: Rig, task: Task, **settings: Any) -> Invocation:
    """Have a supervisor do it, and return its row."""
    rig.runner.run(rig.supervisor(**settings).handle(task))
    return row(rig, task)


def row(rig: Rig, task: Task) -> Invocation:
    found = own(rig.store).invocations.get(task.id)
    assert found is not None
    return found


def signal_the_next(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """Send the next job's first process a signal, before it can have ended."""
    add, unsent = GroupsFile.add, [number]

    def add_and_signal(groups: GroupsFile, group: Group) -> None:
        add(groups, group)
        if unsent:
            os.kill(group.id, unsent.pop())

    monkeypatch.setattr(GroupsFile, "add", add_and_signal)


def test_an_invocation_that_somebody_kills_from_outside_is_done_on_the_next_attempt(
    rig: Rig, compilation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asked(rig, compilation)
    signal_the_next(monkeypatch, signal.SIGKILL)
    done = handled(rig, task)
    assert (done.state, done.attempt, done.lost_attempts) == (JobState.SUCCEEDED, 2, 1)
    assert done.artifact.name == OUTPUTS
    assert not groups_noted(rig.place.folder)


def test_an_invocation_is_confined_as_its_compilation_was(
    rig: Rig, compilation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[SandboxStatus] = []
    monkeypatch.setattr(InvocationRecord, "confined", lambda _record, sandbox: reported.append(sandbox))
    assert handled(rig, asked(rig, compilation)).state is JobState.SUCCEEDED
    (sandbox,) = reported
    assert sandbox.complete
    assert sandbox == own(rig.store).jobs.get(compilation).sandbox


def test_an_invocation_whose_artifact_store_is_away_waits_and_loses_no_attempt(
    rig: Rig, compilation: str
) -> None:
    task = asked(rig, compilation)
    with rig.artifacts_away():
        for _ in range(4):
            with pytest.raises(StoreUnavailableError):
                handled(rig, task, store_patience_seconds=0)
    assert (row(rig, task).state, row(rig, task).worker) == (JobState.RUNNING, None)
    done = handled(rig, task)
    assert (done.state, done.attempt, done.lost_attempts) == (JobState.SUCCEEDED, 5, 0)


def test_an_invocation_that_cost_three_workers_is_given_up(rig: Rig, compilation: str) -> None:
    task = asked(rig, compilation)
    for worker in ("w1", "w2", "w1"):
        started(rig.store.invocations, task.id, worker)
    done = handled(rig, task)
    assert (done.state, done.lost_attempts) == (JobState.FAILED, 3)
    assert done.problem.code is ErrorCode.WORKER_LOST


def test_one_that_was_to_be_cancelled_is_so_where_it_cost_three_workers(rig: Rig) -> None:
    task = asked(rig, rig.job("return 0").id)
    for worker in ("w1", "w2", "w1"):
        started(rig.store.invocations, task.id, worker)
    own(rig.store).invocations.request_cancel(task.id)
    done = handled(rig, task)
    assert (done.state, done.attempt, done.problem) == (JobState.CANCELLED, 3, None)


def test_cancelling_a_running_invocation_ends_its_processes_and_its_row(
    rig: Rig, compilation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asked(rig, compilation)
    signal_the_next(monkeypatch, signal.SIGSTOP)

    async def invoke() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.supervisor().handle(task))
            await asyncio.to_thread(wait_until, lambda: bool(groups_noted(rig.place.folder)))
            await asyncio.to_thread(own(rig.store).invocations.request_cancel, task.id)

    rig.runner.run(invoke())
    done = row(rig, task)
    assert (done.state, done.attempt, done.problem) == (JobState.CANCELLED, 1, None)
    assert not groups_noted(rig.place.folder)


def test_an_attempt_at_an_invocation_is_a_span_of_its_requests_trace(
    rig: Rig, compilation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asked(rig, compilation)
    with rig.store.database.write() as connection:
        connection.execute(sa.update(INVOCATIONS).values(traceparent=f"00-{'a' * 32}-{'b' * 16}-01"))
    with collecting() as collector:
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        tracer = open_tracer("worker")
        supervisor = Supervisor(rig.settings(), rig.store, rig.place, rig.zygote, tracer=tracer)
        rig.runner.run(supervisor.handle(task))
        tracer.close()
    spans = {span.name: span for span in collector.spans}
    assert {name: (span.trace, span.parent) for name, span in spans.items()} == {
        "queue": ("a" * 32, "b" * 16),
        "invocation": ("a" * 32, "b" * 16),
    }
    assert spans["invocation"].attributes["bessemer.invocation"] == task.id
