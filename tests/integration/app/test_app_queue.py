"""What the API says of a queue, and of those who work."""

from app_samples import PlayedWorker, look_anew, post_compilation, submitted, worker
from fastapi import FastAPI
from httpx import AsyncClient

from app.service import Service
from bessemer.contract.base import now
from bessemer.contract.capability import Capability
from bessemer.contract.job import Compilation, CompilationPage
from bessemer.contract.queue import TaskKind
from bessemer.contract.service import RunningTask, WorkerList
from bessemer.contract.stage import Stage
from bessemer.contract.target import PresetTarget

PLAIN = Capability(architecture="x86_64", processors={"x86-64-v4": ("avx512f",)}, lacking=("avx512f",))


async def test_a_queued_compilation_says_where_it_stands_and_a_running_one_does_not(
    app: FastAPI, api: AsyncClient, front: Service, played: PlayedWorker, model: str
) -> None:
    front.store.workers.beat(worker())
    ids = [await submitted(api, priority=priority) for priority in (0, 5, -5)]
    look_anew(app)
    page = CompilationPage.model_validate_json((await api.get("/v1/compilations")).content)
    places = {job.id: job.queue.position if job.queue else None for job in page.items}
    assert [places[job_id] for job_id in ids] == [2, 1, 3]
    played.start(ids[1])
    assert (await api.get(f"/v1/compilations/{ids[1]}")).json()["queue"] is None


async def test_a_compilation_that_no_worker_can_take_says_so(
    app: FastAPI, api: AsyncClient, front: Service, model: str
) -> None:
    first = Compilation.model_validate_json((await post_compilation(api, target="x86-64-v4")).content)
    assert first.queue is not None and "a live worker" in str(first.queue.waiting_for)
    front.store.workers.beat(worker().model_copy(update={"capability": PLAIN}))
    look_anew(app)
    again = Compilation.model_validate_json((await api.get(f"/v1/compilations/{first.id}")).content)
    assert again.queue is not None and "w1 (znver4) lacks avx512f" in str(again.queue.waiting_for)
    assert again.queue.estimated_start_seconds is None


async def test_a_processor_that_no_worker_has_is_named_in_the_answer_to_the_submission(
    app: FastAPI, api: AsyncClient, front: Service, model: str
) -> None:
    sapphire = Capability(architecture="x86_64", processors={"sapphirerapids": ("amx-tile",)})
    front.store.workers.beat(worker().model_copy(update={"capability": sapphire}))
    look_anew(app)
    found = Compilation.model_validate_json((await post_compilation(api, target="sapphirerapids")).content)
    assert found.request.target == PresetTarget(preset="sapphirerapids")
    assert found.queue is not None
    assert str(found.queue.waiting_for).endswith("w1 (znver4) lacks amx-tile")


async def test_a_priority_beyond_the_range_is_refused(api: AsyncClient, model: str) -> None:
    response = await post_compilation(api, priority=101)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "priority")


async def test_the_workers_are_listed_with_what_they_run(api: AsyncClient, front: Service) -> None:
    task = RunningTask(kind=TaskKind.COMPILE, id="0" * 32, began_at=now(), stage=Stage.TUNE)
    alive = worker().model_copy(update={"running": (task,), "capability": PLAIN})
    front.store.workers.beat(alive)
    listed = WorkerList.model_validate_json((await api.get("/v1/workers")).content)
    (found,) = listed.items
    assert found == alive.model_copy(update={"seen_at": found.seen_at})
