"""What is logged: its form, what it is about, and what it never says."""

import json
import logging
import sys
from contextlib import closing
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest
from app_samples import DIGEST, MODEL_BYTES, request, take_database_away
from httpx import AsyncClient
from server_process import running_app

from app.http.request_ids import accepted_id
from app.service import Service
from bessemer.contract.keys import KeyRequest
from bessemer.contract.request import CompilationRequest
from bessemer.store.settings import StoreSettings, read_settings
from bessemer.store.store import open_store
from bessemer.telemetry.logs import (
    LogFormat,
    LogSettings,
    add_log_fields,
    begin_log_fields,
    log_fields,
    make_formatter,
    without_secrets,
)
from tests.tenant_data import own


def line(form: LogFormat, message: str, *arguments: object, error: bool = False) -> str:
    try:
        raise ValueError("postgresql://me:secret@host/db")
    except ValueError:
        exc_info = sys.exc_info() if error else None
    record = logging.LogRecord(
        "worker.supervisor.job", logging.WARNING, "job.py", 1, message, arguments, exc_info
    )
    return make_formatter(form).format(record)


def test_a_line_of_json_has_its_time_level_logger_message_and_what_it_is_about() -> None:
    with log_fields(worker="w1", job="abc"), log_fields(attempt=2):
        entry = json.loads(line(LogFormat.JSON, "job %s", "abc"))
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "WARNING",
        "logger": "worker.supervisor.job",
        "message": "job abc",
        "worker": "w1",
        "job": "abc",
        "attempt": 2,
    }


def test_a_line_of_text_ends_with_what_it_is_about() -> None:
    with log_fields(job="abc", attempt=2):
        text = line(LogFormat.TEXT, "lost")
    assert text.endswith("WARNING worker.supervisor.job: lost [job=abc attempt=2]")
    assert line(LogFormat.TEXT, "lost").endswith("worker.supervisor.job: lost")


@pytest.mark.parametrize("form", LogFormat)
def test_what_a_line_quotes_can_neither_end_it_nor_steer_a_terminal(form: LogFormat) -> None:
    text = line(form, "GET %s", "/a\n2026 ERROR forged\x1b[2J\u2028\x9b")
    assert text.isprintable()
    assert "forged" in text


@pytest.mark.parametrize("form", LogFormat)
def test_no_line_has_a_password_the_traceback_neither(form: LogFormat) -> None:
    text = line(form, "cannot reach %s", "postgresql://me:secret@host/db", error=True)
    assert "ValueError" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:p%40ss@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("redis://:word@host", "redis://:***@host"),
        ("GET https://s3.example/a?X-Amz-Signature=k failed", "GET https://s3.example/a?*** failed"),
        ("http://host:8000/v1/models", "http://host:8000/v1/models"),
        ("what is a@b.c:d?", "what is a@b.c:d?"),
        ("a://u:p@h,b://v:q@k", "a://u:***@h,b://v:***@k"),
        ("://a:" * 20_000, "://a:" * 20_000),
        ("http://" * 20_000, "http://" * 20_000),
        ("GET /bsm_4f1d2a90c3b7_fhF0Jk3m0jvYb-Y2 404", "GET /bsm_4f1d2a90c3b7_*** 404"),
        ("Bearer eyJhbGci.eyJpc3M.c2ln-X_", "Bearer ***"),
        ("-eyJa" * 20_000, "-eyJa" * 20_000),
    ],
)
def test_texts_lose_passwords_queries_keys_and_tokens(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


TALKATIVE = {
    "BESSEMER_LOG_FORMAT": "json",
    "BESSEMER_ACCESS_LOG": "true",
    "BESSEMER_RETENTION_DAYS": "0",
}


def kept_long_ago(data: Path) -> str:
    """A compilation in a closed store, which an app with no retention deletes."""
    with closing(open_store(StoreSettings(data=data))) as store:
        own(store).jobs.submit("ended-long-ago", CompilationRequest.model_validate(request()))
        job = own(store).jobs.request_cancel("ended-long-ago")
    assert job is not None
    return job.id


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What an app said that was asked this and that, and that keeps no compilation that has ended."""
    folder = tmp_path_factory.mktemp("app")
    ended = kept_long_ago(folder / "data")
    with (
        running_app(folder, settings=TALKATIVE) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        client.get("/v1/compilations?cursor=secret", headers={"X-Request-Id": "ci-7.1"})
        client.get("/healthz")
        client.put(f"/v1/models/{DIGEST}", content=MODEL_BYTES)
        client.post("/v1/models", content=MODEL_BYTES)
        job = client.post("/v1/compilations", json=request(inputs=[{"name": "x", "shape": [1]}])).json()["id"]
        client.get(f"/v1/compilations/{job}")
        client.get(f"/v1/compilations/{job}/invocations/no-such-invocation")
        client.get("/v1/compilations/a job=forged")
        while client.get(f"/v1/compilations/{ended}").status_code != 404:
            pass
    text = (server.data / "app.log").read_text()
    assert "secret" not in text
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def answered(lines: list[dict[str, Any]], method: str, route: str) -> dict[str, Any]:
    """The first line of the access log for a route."""
    asked = (line for line in lines if (line.get("method"), line.get("route")) == (method, route))
    return next(asked)


def test_the_apps_access_log_names_route_and_request_but_no_query(lines: list[dict[str, Any]]) -> None:
    refused, healthy = answered(lines, "GET", "/v1/compilations"), answered(lines, "GET", "/healthz")
    about = {name: refused[name] for name in ("logger", "message", "method", "route", "status", "request")}
    assert about == {
        "logger": "app.access",
        "message": "GET /v1/compilations",
        "method": "GET",
        "route": "/v1/compilations",
        "status": 422,
        "request": "ci-7.1",
    }
    assert healthy["request"] != "ci-7.1"
    assert "fields" not in healthy
    assert {"job", "model", "invocation"}.isdisjoint(healthy)


def test_the_apps_lines_name_the_job_invocation_and_model_of_the_request(lines: list[dict[str, Any]]) -> None:
    submitted = answered(lines, "POST", "/v1/compilations")
    job = submitted["job"]
    assert (submitted["status"], submitted["model"]) == (202, DIGEST)
    assert answered(lines, "PUT", "/v1/models/{digest}")["model"] == DIGEST
    assert answered(lines, "POST", "/v1/models")["model"] == DIGEST
    about = [line.get("job") for line in lines if line.get("route") == "/v1/compilations/{id}"]
    assert about[:2] == [job, None]
    invocation = answered(lines, "GET", "/v1/compilations/{id}/invocations/{invocation}")
    assert (invocation["job"], invocation["invocation"]) == (job, "no-such-invocation")


def test_what_retention_deletes_is_logged(lines: list[dict[str, Any]]) -> None:
    (deleted,) = (line for line in lines if line["logger"] == "app.sweeper")
    assert deleted["level"] == "INFO"
    assert deleted["message"].startswith("deleted 1 compilations")


def test_a_field_that_a_thread_adds_is_in_the_requests_lines_and_in_no_later_ones() -> None:
    def answer(request_id: str, job: str | None) -> str:
        begin_log_fields(request=request_id)
        if job is not None:
            copy_context().run(add_log_fields, job=job)
        return line(LogFormat.TEXT, "answered")

    def connection() -> list[str]:
        return [answer("first", "abc"), answer("second", None)]

    first, second = copy_context().run(connection)
    assert first.endswith("[request=first job=abc]")
    assert second.endswith("[request=second]")


@pytest.mark.parametrize("has_key", [True, False])
async def test_an_answer_that_tells_a_client_nothing_more_leaves_its_cause_in_the_log(
    api: AsyncClient, front: Service, job: str, caplog: pytest.LogCaptureFixture, has_key: bool
) -> None:
    caplog.handler.setFormatter(make_formatter(LogFormat.JSON))
    if has_key:  # known keys reach the route, and no one else does
        key = front.store.keys.create(KeyRequest()).key
        api.headers["Authorization"] = f"Bearer {key}"
        assert (await api.get("/v1/compilations")).status_code == 200
    take_database_away(front)
    answer = await api.get(f"/v1/compilations/{job}")
    entries = map(json.loads, caplog.text.splitlines())
    (entry,) = (entry for entry in entries if entry["logger"] == "app.http.problems")
    assert answer.status_code == 503
    assert (entry.get("job"), entry["level"]) == (job if has_key else None, "WARNING")
    assert "unable to open database file" in entry["message"]


async def test_every_answer_has_a_requests_id(api: AsyncClient) -> None:
    given = await api.get("/healthz", headers={"X-Request-Id": "build-17"})
    made = [await api.get(path) for path in ("/healthz", "/nothing", "/v1/models/x")]
    assert given.headers["X-Request-Id"] == "build-17"
    assert len({answer.headers["X-Request-Id"] for answer in made}) == 3


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, 'a"b', "a\nb", "é"])
def test_an_id_that_could_spoil_a_log_is_replaced(given: str) -> None:
    assert accepted_id(given) != given


def test_a_format_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BESSEMER_LOG_FORMAT", "xml")
    with pytest.raises(SystemExit, match="2"):
        read_settings(LogSettings)
    assert capsys.readouterr().err.startswith("BESSEMER_LOG_FORMAT: ")
