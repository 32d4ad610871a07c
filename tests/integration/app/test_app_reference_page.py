"""The page that documents the API."""

import re
from html.parser import HTMLParser

from fastapi import FastAPI
from httpx import AsyncClient

from app.openapi.page import page


class Outline(HTMLParser):
    """The elements of a page, its anchors, and what it refers to."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.anchors: list[str] = []
        self.references: set[str] = set()
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self._open.append(tag)
        values = {name: value or "" for name, value in attrs}
        self.anchors += [values["id"]] if "id" in values else []
        self.references |= {values[name] for name in ("href", "src", "action") if name in values}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


async def test_commands_name_the_server_that_was_asked(api: AsyncClient) -> None:
    text = (await api.get("/docs", headers={"Host": "127.0.0.1:8123"})).text
    assert "http://127.0.0.1:8123/v1/models" in text and ":8000" not in text


async def test_the_page_needs_no_other_host_and_no_script(api: AsyncClient) -> None:
    response = await api.get("/docs")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    outline = Outline(response.text)
    assert not outline.tags & {"script", "link", "img", "iframe"}
    assert not re.search(
        r"url\(|@import|//", "".join(outline.references) + response.text.split("</style>")[0]
    )
    assert {name for name in outline.references if not name.startswith("#")} == {"openapi.json"}
    assert (await api.get("/openapi.json")).status_code == 200


async def test_every_operation_and_every_document_is_on_the_page(app: FastAPI) -> None:
    document = app.openapi()
    outline = Outline(page(document))
    names = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert set(outline.anchors) == names | set(document["components"]["schemas"])
    assert len(outline.anchors) == len(set(outline.anchors))
    assert {name[1:] for name in outline.references if name.startswith("#")} <= set(outline.anchors)


def test_text_of_the_document_is_never_markup() -> None:
    hostile = "<script>alert(1)</script>"
    document = {
        "info": {"title": hostile, "version": hostile, "description": hostile},
        "tags": [],
        "paths": {},
        "components": {"schemas": {"Odd": {"type": hostile, "description": f"`{hostile}`"}}},
    }
    assert "<script" not in page(document)
