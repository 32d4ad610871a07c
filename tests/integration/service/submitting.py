"""Sends a row of the table of bad input to a service and reads the answer."""

import hashlib
import http.client
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
from refusals import Refusal

from bessemer.contract.problem import Problem

WAIT_SECONDS = 180.0


@dataclass(frozen=True)
class Answer:
    """A refusal: its status and problem, and a job's number of attempts."""

    status: int
    problem: Problem | None
    attempts: int = 0


def upload(api: httpx.Client, row: Refusal) -> httpx.Response:
    if row.declared_bytes is not None:
        return announce(api, row.declared_bytes)
    if row.digest is not None:
        return api.put(f"/v1/models/{row.digest}", content=row.make())
    return api.post("/v1/models", content=row.make())


def announce(api: httpx.Client, size_bytes: int) -> httpx.Response:
    """Say how large an upload will be, and wait for the answer before sending it."""
    connection = http.client.HTTPConnection(api.base_url.host, api.base_url.port or 80, timeout=60)
    with closing(connection):
        connection.putrequest("POST", "/v1/models")
        connection.putheader("Content-Length", str(size_bytes))
        connection.endheaders()
        reply = connection.getresponse()
        return httpx.Response(reply.status, content=reply.read())


def ask(api: httpx.Client, row: Refusal, uploaded: httpx.Response) -> httpx.Response:
    """Request a compilation of the upload after its inspection."""
    if uploaded.is_error:
        return uploaded
    digest = uploaded.json()["digest"]
    polled(api, f"/v1/models/{digest}", {"inspecting"})
    return api.post("/v1/compilations", json=request(digest, row.fields))


def request(digest: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"model": digest, "target": "host", "benchmark": {"seconds": 0.01}, **fields}


def answer_of(api: httpx.Client, reply: httpx.Response) -> Answer:
    if reply.is_error:
        return Answer(reply.status_code, Problem.model_validate_json(reply.content))
    job = finished(api, reply.json()["id"])
    problem = job["problem"] and Problem.model_validate(job["problem"])
    return Answer(reply.status_code, problem, job["attempt"])


def finished(api: httpx.Client, job: str) -> dict[str, Any]:
    return polled(api, f"/v1/compilations/{job}", {"queued", "running"})


def compiled(api: httpx.Client, content: bytes, **fields: Any) -> dict[str, Any]:
    """The final document of a compilation that should succeed."""
    digest = hashlib.sha256(content).hexdigest()
    assert api.put(f"/v1/models/{digest}", content=content).is_success
    reply = api.post("/v1/compilations", json=request(digest, {"stop_after": "verify", **fields}))
    assert reply.status_code == 202, reply.text
    return finished(api, reply.json()["id"])


def polled(api: httpx.Client, path: str, unfinished: set[str]) -> dict[str, Any]:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        document: dict[str, Any] = api.get(path).json()
        if document["state"] not in unfinished:
            return document
        time.sleep(0.05)
    raise AssertionError(f"{path} did not end")
