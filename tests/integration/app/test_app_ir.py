"""Reading snapshots of the module, from jobs that may have written anything."""

import json

import pytest
import zstandard
from app_samples import PlayedWorker, submitted
from httpx import AsyncClient

from bessemer.contract.ir import IR_INDEX, IR_TEXTS

TEXTS = (b"class Module:\n    pass\n", b"class Module:\n    done\n")
DIFF = b"--- before\n+++ after\n"
FRAMES = [zstandard.compress(text) for text in (*TEXTS, DIFF)]
COUNTS = dict.fromkeys(
    ("functions", "kernels", "operators", "calls", "blocks", "loops", "constants", "constant_bytes"), 1
)
NOTHING = {"offset": 0, "packed_bytes": 0, "text_bytes": 0, "whole_bytes": None}


def part(number: int, text: bytes) -> dict[str, int | None]:
    offset = sum(map(len, FRAMES[:number]))
    frame = {"offset": offset, "packed_bytes": len(FRAMES[number]), "text_bytes": len(text)}
    return {**frame, "whole_bytes": None}


def step(number: int, **fields: object) -> dict[str, object]:
    named = {"step": number, "stage": "optimize", "phase": "fold", "name": "FoldConstant"}
    plain = {"seconds": 0.1, "changed": True, "counts": COUNTS, "text": part(number, TEXTS[number])}
    return {**named, **plain, "diff": part(2, DIFF) if number else NOTHING, "truncated": False, **fields}


LISTING = {"items": [step(0), step(1)]}


async def failed_job(
    api: AsyncClient, played: PlayedWorker, listing: object, texts: bytes = b"".join(FRAMES)
) -> str:
    """The address of a compilation that failed after it took snapshots."""
    job = await submitted(api, inspect={"ir": True})
    files = {IR_INDEX: json.dumps(listing).encode(), IR_TEXTS: texts}
    played.fail_with(job, played.start(job), files)
    return f"/v1/compilations/{job}/ir"


async def test_a_job_that_failed_has_its_snapshots(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    address = await failed_job(api, played, LISTING)
    assert (await api.get(address)).json() == LISTING
    text = await api.get(f"{address}/1")
    assert (text.content, text.headers["Content-Type"]) == (TEXTS[1], "text/plain; charset=utf-8")
    assert text.headers["X-Content-Type-Options"] == "nosniff"
    assert (await api.get(f"{address}/1/diff")).content == DIFF
    assert (await api.get(f"{address}/0/diff")).content == b""


async def test_a_step_is_found_by_its_name(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    address = await failed_job(api, played, {"items": [step(0, name="translate"), step(1, name="gelu.erf")]})
    assert (await api.get(f"{address}/translate")).content == TEXTS[0]
    assert (await api.get(f"{address}/gelu.erf")).content == TEXTS[1]
    assert (await api.get(f"{address}/gelu.erf/diff")).content == DIFF
    assert (await api.get(f"{address}/Translate")).content == TEXTS[0]
    missing = await api.get(f"{address}/transalte")
    assert missing.json()["detail"].endswith("did you mean 'translate'?")


async def test_a_name_of_several_steps_is_answered_with_their_numbers(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    response = await api.get(await failed_job(api, played, LISTING) + "/FoldConstant")
    assert response.status_code == 404
    assert "several steps named FoldConstant" in response.json()["detail"]
    assert "0 (FoldConstant), 1 (FoldConstant)" in response.json()["detail"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/2", 404, "not-found"),
        ("/-1", 404, "not-found"),
        ("/x/diff", 404, "not-found"),
        (f"/{'x' * 201}", 422, "request-invalid"),
    ],
)
async def test_a_step_that_is_none_is_refused(
    api: AsyncClient, played: PlayedWorker, model: str, path: str, status: int, code: str
) -> None:
    response = await api.get(await failed_job(api, played, LISTING) + path)
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_a_job_that_kept_nothing_says_what_to_ask_for(api: AsyncClient, job: str) -> None:
    response = await api.get(f"/v1/compilations/{job}/ir")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")
    assert "inspect.ir" in response.json()["detail"]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        (part(0, TEXTS[0]) | {"offset": 10_000}, b"".join(FRAMES)),
        (part(0, TEXTS[0]) | {"text_bytes": 1000}, b"".join(FRAMES)),
        (part(0, TEXTS[0]), b"x" * 200),
        (part(0, TEXTS[0]), b""),
        (part(0, TEXTS[0]) | {"packed_bytes": 1 << 40}, b"".join(FRAMES)),
        (part(0, TEXTS[0]) | {"text_bytes": 1 << 40}, b"".join(FRAMES)),
    ],
    ids=["beyond the file", "longer", "no frame", "empty file", "huge frame", "huge text"],
)
async def test_what_a_job_wrote_wrongly_is_not_found(
    api: AsyncClient, played: PlayedWorker, model: str, text: object, texts: bytes
) -> None:
    address = await failed_job(api, played, {"items": [step(0, text=text)]}, texts)
    response = await api.get(f"{address}/0")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")


async def test_of_a_frame_that_expands_hugely_only_what_was_listed_is_read(
    api: AsyncClient, played: PlayedWorker, model: str
) -> None:
    bomb = zstandard.compress(bytes(1 << 28))
    text = {"offset": 0, "packed_bytes": len(bomb), "text_bytes": 100}
    address = await failed_job(api, played, {"items": [step(0, text=text)]}, bomb)
    response = await api.get(f"{address}/0")
    assert (response.status_code, response.content) == (200, bytes(100))


@pytest.mark.parametrize("listing", ["no list", {"items": [{}]}, {"items": [step(0, name="x" * 5000)]}])
async def test_a_list_that_is_none_is_not_found(
    api: AsyncClient, played: PlayedWorker, model: str, listing: object
) -> None:
    response = await api.get(await failed_job(api, played, listing))
    assert (response.status_code, response.json()["code"]) == (404, "not-found")
