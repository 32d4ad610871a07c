"""No text of a user or of a model is ever markup on a page of the console."""

import re
from html.parser import HTMLParser

import httpx
import pytest
from app_samples import PlayedWorker
from fastapi import FastAPI

from app.service import Service
from tests.console_pages import console_pages, filled
from tests.hostile_texts import ALL, HOSTILE, PROBE, HostileRows, hostile_rows

HANDLER = re.compile(r"on[a-z]+")
ADDRESSES = frozenset({"href", "src", "action", "formaction", "hx-get", "hx-post", "xlink:href"})


class Markup(HTMLParser):
    """Collects what a page may not have."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in (PROBE, "base", "iframe", "object", "embed") or (tag == "script" and "src" not in given):
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            address = (value or "").strip().lower()
            if name == "style" or HANDLER.fullmatch(name):
                self.found.append(f"<{tag} {name}>")
            if name in ADDRESSES and not re.match(r"[/?#]|$|[a-z0-9]+(/|$)", address):
                self.found.append(f"<{tag} {name}={address[:60]}>")


def markup(page: str) -> list[str]:
    reader = Markup()
    reader.feed(page)
    return reader.found


@pytest.fixture
def rows(front: Service, played: PlayedWorker) -> HostileRows:
    return hostile_rows(front.store, played)


async def test_hostile_texts_are_never_markup(
    app: FastAPI, api: httpx.AsyncClient, rows: HostileRows
) -> None:
    seen = 0
    for path in console_pages(app):
        for job in (*rows.failed, rows.succeeded) if "{id}" in path else (rows.succeeded,):
            for headers in ({}, {"HX-Request": "true"}):
                page = await api.get(filled(path, {"id": job, "digest": rows.model}), headers=headers)
                assert page.status_code < 500, (path, page.text[:300])
                assert markup(page.text) == [], path
                seen += page.text.count("&lt;")
    assert seen > len(HOSTILE)


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_queries_are_never_markup(app: FastAPI, api: httpx.AsyncClient, text: str) -> None:
    names = (
        "name",
        "label",
        "state",
        "next",
        "from",
        "model",
        "file_name",
        "target",
        "tune.trials",
        "inputs",
    )
    for path in console_pages(app):
        if "{" not in path:
            page = await api.get(path, params=dict.fromkeys(names, text))
            assert page.status_code < 500, (path, page.text[:300])
            assert markup(page.text) == [], path


async def test_a_hostile_form_comes_back_as_text(api: httpx.AsyncClient, rows: HostileRows) -> None:
    fields = dict.fromkeys(
        ("name", "labels", "tune.strategy", "inputs", "target", "constants", "kernels"), ALL
    )
    files = [("file", (ALL, b"", "application/octet-stream"))]
    files += [(name, (None, text.encode(), "text/plain")) for name, text in fields.items()]
    page = await api.post("/console/submit", files=files)
    assert page.status_code in (400, 413, 422)
    assert markup(page.text) == []


def test_the_reader_finds_what_a_page_that_does_not_escape_would_have() -> None:
    found = [text for text in HOSTILE if markup(f"<p title=\"{text}\">{text}</p><a href='{text}'>")]
    assert len(found) >= len(HOSTILE) - 3
