"""What is logged: its form, what it is about, and what it never says."""

import json
import logging
import sys
from pathlib import Path

import httpx
import pytest
from httpx import AsyncClient
from server_process import running_app

from app.request_ids import accepted_id
from bessemer.store.settings import read_settings
from bessemer.telemetry.logs import LogFormat, LogSettings, log_fields, make_formatter, without_secrets


def line(form: LogFormat, message: str, *arguments: object, error: bool = False) -> str:
    try:
        raise ValueError("postgresql://me:secret@host/db")
    except ValueError:
        exc_info = sys.exc_info() if error else None
    record = logging.LogRecord("worker.job", logging.WARNING, "job.py", 1, message, arguments, exc_info)
    return make_formatter(form).format(record)


def test_a_line_of_json_has_its_time_level_logger_message_and_what_it_is_about() -> None:
    with log_fields(worker="w1", job="abc"), log_fields(attempt=2):
        entry = json.loads(line(LogFormat.JSON, "job %s", "abc"))
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "WARNING",
        "logger": "worker.job",
        "message": "job abc",
        "worker": "w1",
        "job": "abc",
        "attempt": 2,
    }


def test_a_line_of_text_ends_with_what_it_is_about() -> None:
    with log_fields(job="abc", attempt=2):
        text = line(LogFormat.TEXT, "lost")
    assert text.endswith("WARNING worker.job: lost [job=abc attempt=2]")
    assert line(LogFormat.TEXT, "lost").endswith("worker.job: lost")


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
    ],
)
def test_addresses_lose_passwords_and_queries(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_the_apps_access_log_names_route_and_request_but_no_query(tmp_path: Path) -> None:
    asked_for = {"BESSEMER_LOG_FORMAT": "json", "BESSEMER_ACCESS_LOG": "true"}
    with running_app(tmp_path, settings=asked_for) as server:
        headers = {"X-Request-Id": "ci-7.1"}
        httpx.get(f"{server.url}/v1/compilations?cursor=secret", headers=headers, timeout=30)
        httpx.get(f"{server.url}/healthz", timeout=30)
    lines = [text for text in (server.data / "app.log").read_text().splitlines() if text.startswith("{")]
    refused, healthy = map(json.loads, lines)
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
    assert "secret" not in "".join(lines)


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
