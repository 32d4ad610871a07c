"""What the queue has lost comes back: never enqueued, given up, in the hand of a lost worker."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from app_samples import DIGEST, MODEL_BYTES, WITH_SHAPES, request, worker
from httpx import AsyncClient

from app.identity.caller import ANONYMOUS
from app.service import Service
from app.sweeper import sweep, sweep_uploads
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.store.blobs.object_stores import INCOMING
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_consumer import open_consumer
from bessemer.store.queue.reaper import Leases, Reaper
from bessemer.store.queue_port import Handle, Task, TaskKind
from bessemer.telemetry.logs import LogFormat, make_formatter
from tests.inspections import inspected
from tests.queue_processes import next_line, worker_process
from tests.tenant_data import inspection_of, own

PATIENCE_SECONDS = 60


@pytest.fixture
def eager(front: Service) -> Service:
    """Sweeps what was lost a moment ago."""
    return replace(front, settings=front.settings.model_copy(update={"sweep_age_seconds": 0}))


@asynccontextmanager
async def consuming(service: Service, handle: Handle) -> AsyncIterator[None]:
    running = asyncio.create_task(open_consumer(service.settings, "w1").run(handle))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def submit(service: Service, job_id: str) -> None:
    own(service.store).jobs.submit(job_id, CompilationRequest.model_validate(request()))


async def test_what_never_reached_the_queue_is_enqueued(
    eager: Service, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.setFormatter(make_formatter(LogFormat.JSON))
    own(eager.store).models.add(DIGEST, 1)
    model_id = inspection_of(eager.store, DIGEST).id
    submit(eager, "0" * 32)
    assert (sweep(eager), sweep(eager)) == (2, 0)
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    assert [(line.get("job"), line.get("inspection")) for line in lines] == [
        ("0" * 32, None),
        (None, model_id),
    ]


async def test_a_task_that_cannot_be_enqueued_stops_no_other(
    eager: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(eager.store).models.add(DIGEST, 1)
    submit(eager, "0" * 32)
    submit(eager, "1" * 32)
    enqueue = eager.queue.enqueue

    def refuse_first(task: Task, *others: Any, **named: Any) -> None:
        if task.id == "0" * 32:
            raise StoreUnavailableError("the row is too large for the index")
        enqueue(task, *others, **named)

    monkeypatch.setattr(eager.queue, "enqueue", refuse_first)
    assert sweep(eager) == 2
    assert "cannot be enqueued" in caplog.text


async def test_a_job_that_the_queue_gave_up_is_handled_again(eager: Service) -> None:
    submit(eager, "job-given-up")
    begun: list[Task] = []

    async def fail_once(task: Task) -> None:
        begun.append(task)
        if len(begun) == 1:
            raise RuntimeError("the store is away")
        own(eager.store).jobs.request_cancel(task.id)

    eager.for_caller(ANONYMOUS).try_enqueue(own(eager.store).jobs, "job-given-up")
    async with consuming(eager, fail_once):
        while len(begun) < 2:
            await asyncio.to_thread(sweep, eager)
    assert sweep(eager) == 0
    assert begun == [Task(TaskKind.COMPILE, "job-given-up")] * 2


async def test_a_compilation_that_is_submitted_again_after_its_deletion_is_in_the_queue_at_once(
    api: AsyncClient, front: Service, model: str
) -> None:
    async def cancel(task: Task) -> None:
        await asyncio.to_thread(own(front.store).jobs.request_cancel, task.id)

    async def submitted() -> str:
        answer = await api.post("/v1/compilations", json=request(), headers={"Idempotency-Key": "build-17"})
        return Task(TaskKind.COMPILE, answer.json()["id"]).key

    key = await submitted()
    async with consuming(front, cancel):
        while key in await asyncio.to_thread(front.queue.in_progress):
            pass
    assert (await api.delete(f"/v1/compilations/{key.partition(':')[2]}")).status_code == 204
    assert await submitted() in front.queue.in_progress()


async def test_a_model_that_was_rejected_by_bad_luck_is_inspected_again_when_it_is_uploaded_again(
    api: AsyncClient, eager: Service
) -> None:
    found = [make_problem(ErrorCode.WORKER_LOST, "bad luck"), WITH_SHAPES]

    async def inspect(_: Task) -> None:
        await asyncio.to_thread(inspected, eager.store, DIGEST, found.pop(0))

    async def seen(state: ModelState) -> None:
        while (await api.get(f"/v1/models/{DIGEST}")).json()["state"] != state:
            await asyncio.to_thread(sweep, eager)

    async with consuming(eager, inspect):
        await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        await seen(ModelState.REJECTED)
        again = await api.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        assert (again.status_code, again.json()["state"]) == (200, "inspecting")
        await seen(ModelState.READY)


async def test_a_defective_model_stays_rejected_when_it_is_uploaded_again(
    api: AsyncClient, front: Service, model: str
) -> None:
    inspected(front.store, model, make_problem(ErrorCode.MODEL_DAMAGED, "torn"))
    again = await api.put(f"/v1/models/{model}", content=MODEL_BYTES)
    assert (again.status_code, again.json()["state"]) == (200, "rejected")


@pytest.mark.parametrize("known", [True, False], ids=["silent", "without a row"])
async def test_what_a_worker_had_in_hand_is_put_back_once_it_is_lost(
    eager: Service, caplog: pytest.LogCaptureFixture, known: bool
) -> None:
    submit(eager, "stuck-job")
    eager.for_caller(ANONYMOUS).try_enqueue(own(eager.store).jobs, "stuck-job")
    with worker_process(eager.settings, "w1") as process:
        assert next_line(process) == "compile:stuck-job"
    if known:
        eager.store.workers.beat(worker())
    seconds = iter((0.0, 1.0, 2.0, 3.0, 4.0))
    leases = Leases(2, lambda: next(seconds))
    caplog.handler.setFormatter(make_formatter(LogFormat.JSON))
    reaper = Reaper(eager.store.workers, eager.queue, leases, eager.metrics.losses.worker)
    assert [reaper.reap() for _ in range(4)] == [0, 0, 1, 0]
    assert eager.store.workers.live(3600) == ()
    (line,) = (entry for entry in map(json.loads, caplog.text.splitlines()) if "job" in entry)
    assert (line["job"], line["task"], line["worker"]) == ("stuck-job", "compile", "w1")
    lost = {"kind": "compile", "reason": "worker-lost"}
    assert eager.metrics.registry.get_sample_value("bessemer_attempts_lost_total", lost) == 1


async def test_only_uploads_that_were_cut_off_long_ago_are_swept(front: Service) -> None:
    incoming = front.settings.folder / "artifacts" / INCOMING
    incoming.mkdir(parents=True)
    (incoming / "today#1").write_bytes(b"half")
    assert sweep_uploads(front) == 0
