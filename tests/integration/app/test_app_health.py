"""Health, readiness and targets."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from app_samples import CONFINED, worker
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

import bessemer
from app.recent_success import HOLD_SECONDS
from app.service import Service
from bessemer.contract.capability import Capability
from bessemer.contract.fleet import TargetList
from bessemer.contract.sandbox import Layer, LayerStatus, SandboxMode, SandboxStatus
from bessemer.contract.service import Readiness
from bessemer.contract.target import PRESETS


async def ready(api: AsyncClient) -> Readiness:
    response = await api.get("/readyz")
    assert response.status_code == 200
    return Readiness.model_validate_json(response.content)


async def test_without_a_worker_the_service_is_ready_and_says_so(api: AsyncClient) -> None:
    state = await ready(api)
    assert (state.ready, state.workers) == (True, ())
    assert "no live worker" in state.warnings[0]


async def test_a_confined_worker_leaves_nothing_to_warn_of(api: AsyncClient, front: Service) -> None:
    front.store.workers.beat(worker())
    state = await ready(api)
    assert (state.workers[0].sandbox, state.warnings) == (CONFINED, ())


async def test_a_lost_layer_and_a_lax_mode_are_named(api: AsyncClient, front: Service) -> None:
    layers = (
        LayerStatus(layer=Layer.UID, holds=False, required=False),
        LayerStatus(layer=Layer.SECCOMP, holds=True, required=True),
    )
    front.store.workers.beat(worker(SandboxStatus(mode=SandboxMode.BEST_EFFORT, layers=layers)))
    warnings = " ".join((await ready(api)).warnings)
    assert "best-effort" in warnings
    assert "uid" in warnings
    assert "seccomp" not in warnings


@pytest.mark.parametrize("folder", ["artifacts", ""])
async def test_a_disk_that_is_almost_full_is_a_warning(
    api: AsyncClient, front: Service, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    front.store.workers.beat(worker())
    full = front.settings.folder / folder

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=65_536 if path == full else 1 << 40)

    monkeypatch.setattr("app.readiness.disk_usage", usage)
    state = await ready(api)
    assert state.ready
    assert state.warnings == (
        "the disk of the database or of the artifact store has 64.0 KiB left: uploads and compilations fail "
        "when it is full",
    )


def take_store_away(front: Service) -> None:
    shutil.rmtree(front.settings.folder / "artifacts")
    (front.settings.folder / "artifacts").write_text("no folder")


async def test_the_client_reads_what_is_away(app: FastAPI, front: Service) -> None:
    take_store_away(front)
    async with bessemer.AsyncClient("http://localhost", transport=ASGITransport(app)) as client:
        state = await client.readiness()
    assert (state.ready, state.database, state.store) == (False, True, False)


async def test_a_store_that_is_away_makes_the_service_unready_but_alive(
    api: AsyncClient, front: Service
) -> None:
    take_store_away(front)
    response = await api.get("/readyz")
    state = Readiness.model_validate_json(response.content)
    assert (response.status_code, state.ready, state.database, state.store) == (503, False, True, False)
    assert response.headers["Retry-After"].isdecimal()
    assert (await api.get("/healthz")).json() == {"status": "ok"}


async def test_a_write_of_the_readiness_check_serves_for_some_seconds(
    api: AsyncClient, front: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment, writes = 100.0, list[float]()
    monkeypatch.setattr("app.recent_success.time", SimpleNamespace(monotonic=lambda: moment))
    ping = front.store.artifacts.ping

    def counted() -> None:
        writes.append(moment)
        ping()

    monkeypatch.setattr(front.store.artifacts, "ping", counted)
    for _ in range(3):
        await ready(api)
    assert writes == [100.0]
    moment += HOLD_SECONDS
    await ready(api)
    assert writes == [100.0, 100.0 + HOLD_SECONDS]
    take_store_away(front)
    moment += HOLD_SECONDS
    assert [(await api.get("/readyz")).status_code for _ in range(2)] == [503, 503]
    assert len(writes) == 4


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_monitor_may_ask_for_the_headers_alone(api: AsyncClient, path: str) -> None:
    assert (await api.head(path)).status_code == 200


async def test_presets_and_processors_are_listed(api: AsyncClient) -> None:
    targets = TargetList.model_validate_json((await api.get("/v1/targets")).content)
    assert [item.name for item in targets.items] == [preset.name for preset in PRESETS]
    assert "skylake-avx512" in targets.processors["x86-64-v4"]
    assert "cortex-a72" in targets.processors["aarch64"]


async def test_each_preset_says_what_the_live_workers_can_do_for_it(api: AsyncClient, front: Service) -> None:
    async def means(name: str) -> tuple[str, ...]:
        targets = TargetList.model_validate_json((await api.get("/v1/targets")).content)
        fleet = next(item.fleet for item in targets.items if item.name == name)
        return (fleet.build, fleet.verify, fleet.measure) if fleet else ()

    assert await means("aarch64") == ("none", "none", "none")
    capability = Capability(architecture="x86_64", foreign=("aarch64", "riscv64"), programs=("aarch64",))
    front.store.workers.beat(worker().model_copy(update={"capability": capability}))
    assert await means("host") == ("native", "native", "native")
    assert await means("aarch64") == ("native", "emulation", "none")
    assert await means("riscv64") == ("native", "none", "none")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"])
async def test_head_is_answered_where_get_is(api: AsyncClient, path: str) -> None:
    response = await api.head(path)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_front_page_leads_to_the_console(api: AsyncClient, method: str) -> None:
    response = await api.request(method, "/")
    assert (response.status_code, response.headers["Location"]) == (307, "/console/compilations")
