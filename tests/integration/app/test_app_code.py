"""Reading what each function of a library computes, from jobs that may have written anything."""

import json

import pytest
import zstandard
from app_samples import PlayedWorker, submitted
from httpx import AsyncClient

from bessemer.contract.code import CODE_INDEX, CODE_TEXTS

LLVM, ASSEMBLY = b"define i32 @add() {\n}\n", b"add:\n\tretq\n"
FRAMES = [zstandard.compress(text) for text in (LLVM, ASSEMBLY)]
FUNCTION = {
    "name": "add",
    "operators": [0],
    "llvm_ir": {"offset": 0, "packed_bytes": len(FRAMES[0]), "text_bytes": len(LLVM)},
    "assembly": {"offset": len(FRAMES[0]), "packed_bytes": len(FRAMES[1]), "text_bytes": len(ASSEMBLY)},
}
LISTING = {
    "functions": [FUNCTION],
    "calls": [{"function": "add", "inputs": [], "operators": [0]}],
    "operators": [{"name": "add", "place": {"operator": "aten.add.Tensor", "line": 3, "file": "net.py"}}],
}


async def failed_job(api: AsyncClient, played: PlayedWorker, listing: object, **inspect: bool) -> str:
    """The address of the code of a compilation that failed after it kept some."""
    job = await submitted(api, inspect=inspect)
    files = {CODE_INDEX: json.dumps(listing).encode(), CODE_TEXTS: b"".join(FRAMES)}
    played.fail_with(job, played.start(job), files)
    return f"/v1/compilations/{job}/code"


async def test_functions_have_operators_and_code(api: AsyncClient, played: PlayedWorker, model: str) -> None:
    address = await failed_job(api, played, LISTING, assembly=True)
    listing = (await api.get(address)).json()
    assert listing["calls"] == LISTING["calls"]
    assert listing["functions"][0]["assembly"] == {**FUNCTION["assembly"], "whole_bytes": None}
    llvm = await api.get(f"{address}/add/llvm-ir")
    assert (llvm.content, llvm.headers["Content-Type"]) == (LLVM, "text/plain; charset=utf-8")
    assert llvm.headers["X-Content-Type-Options"] == "nosniff"
    assert (await api.get(f"{address}/add/assembly")).content == ASSEMBLY


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/ad/assembly", 404, "has no function 'ad'; did you mean 'add'?\""),
        ("/zzz/assembly", 404, "has no function 'zzz'.\""),
        ("/add/cuda", 422, "kind"),
        (f"/{'x' * 201}/assembly", 422, "function"),
    ],
)
async def test_code_that_there_is_not_is_refused(
    api: AsyncClient, played: PlayedWorker, model: str, path: str, status: int, said: str
) -> None:
    response = await api.get(await failed_job(api, played, LISTING, ir=True) + path)
    assert response.status_code == status
    assert said in response.text


async def test_a_job_that_kept_no_code_says_what_to_ask_for(api: AsyncClient, job: str) -> None:
    response = await api.get(f"/v1/compilations/{job}/code")
    assert (response.status_code, response.json()["code"]) == (404, "not-found")
    assert "inspect.assembly" in response.json()["detail"]


@pytest.mark.parametrize(
    "listing",
    [
        "no list",
        {**LISTING, "calls": [{"function": "add", "inputs": [], "operators": [1]}]},
        {**LISTING, "calls": [{"function": "add", "inputs": [7], "operators": []}]},
        {**LISTING, "functions": [{**FUNCTION, "operators": [-1]}]},
        {**LISTING, "functions": [{**FUNCTION, "name": "x" * 1000}]},
    ],
    ids=["no list", "operator", "input", "negative", "long name"],
)
async def test_a_list_that_refers_to_nothing_is_not_found(
    api: AsyncClient, played: PlayedWorker, model: str, listing: object
) -> None:
    response = await api.get(await failed_job(api, played, listing, ir=True))
    assert (response.status_code, response.json()["code"]) == (404, "not-found")
