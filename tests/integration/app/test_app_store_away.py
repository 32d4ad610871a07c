"""What clients hear while the artifact store cannot be used, and afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from app_samples import DIGEST, MODEL_BYTES, PlayedWorker

from app.settings import AppSettings

SENT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a model": ("POST", "/v1/models", {"content": MODEL_BYTES}),
    "a model by digest": ("PUT", f"/v1/models/{DIGEST}", {"content": MODEL_BYTES}),
    "a form": (
        "POST",
        "/v1/compilations",
        {"files": {"model": MODEL_BYTES, "request": (None, '{"target": "host"}')}},
    ),
    "inputs": ("POST", "{done}/invocations", {"content": b"arrays"}),
    "a bundle": ("GET", "{done}/artifacts/bundle.tar.zst", {}),
    "a report": ("GET", "{done}/report", {}),
}


@contextmanager
def away(folder: Path) -> Iterator[None]:
    """A folder that is a file for a while; root may write anywhere else."""
    kept = folder.rename(folder.with_suffix(".kept"))
    folder.touch()
    yield
    folder.unlink()
    kept.rename(folder)


async def test_every_transfer_is_refused_for_now_and_succeeds_when_the_store_is_back(
    api: httpx.AsyncClient, settings: AppSettings, played: PlayedWorker, job: str
) -> None:
    played.succeed(job, played.start(job))
    done = f"/v1/compilations/{job}"

    async def statuses() -> dict[str, tuple[int, str | None, str | None]]:
        found = {}
        for name, (method, path, body) in SENT.items():
            answer = await api.request(method, path.format(done=done), **body)
            problem = answer.json() if "problem" in answer.headers["Content-Type"] else {}
            found[name] = answer.status_code, problem.get("code"), answer.headers.get("Retry-After")
        return found

    with away(settings.folder / "artifacts"):
        assert await statuses() == dict.fromkeys(SENT, (503, "unavailable", "2"))
        assert (await api.get(done)).json()["state"] == "succeeded"
        assert (await api.get("/readyz")).json()["store"] is False
    assert {name: status for name, (status, _, _) in (await statuses()).items()} == {
        "a model": 200,
        "a model by digest": 200,
        "a form": 202,
        "inputs": 202,
        "a bundle": 200,
        "a report": 200,
    }
