"""Entity tags of documents, and `HEAD` (RFC 9110, sections 9.3.2 and 13).

A document's entity tag is a hash of its bytes, computed for each response. A file's tag is its digest.
Streams have none.
"""

import hashlib
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from app.http.problems import allowed_methods, answers_head
from app.http.ranges import not_modified
from app.middleware import Middleware

PREFIX = "/v1/"
JSON = "application/json"
KEPT = ("etag", "cache-control", "vary", "date", "retry-after", "location")
"""The headers that a 304 repeats."""


class Conditional(Middleware):
    """Adds entity tags to documents, and `HEAD` to routes that have only `GET`."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and omit a body that the client does not need."""
        is_document = scope["path"].startswith(PREFIX)
        is_head = scope["method"] == "HEAD" and _is_read_by_get_alone(scope)
        if not is_head and not (is_document and scope["method"] == "GET"):
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, Headers(scope=scope), is_head)
        method, scope["method"] = scope["method"], "GET"
        try:
            await self._app(scope, receive, answer.take)
        finally:
            scope["method"] = method


def _is_read_by_get_alone(scope: Scope) -> bool:
    methods = allowed_methods(Request(scope))
    return "GET" in methods and "HEAD" not in methods and answers_head(scope["path"])


class _Answer:
    """Buffers a document until its tag is known; passes everything else on."""

    def __init__(self, send: Send, asked: Mapping[str, str], is_head: bool) -> None:
        self._send = send
        self._asked = asked
        self._is_head = is_head
        self._start: Message | None = None
        self._body = b""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_document(message):
            self._start = message
        elif self._start is None:
            await self._pass(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._answer(self._start)

    async def _pass(self, message: Message) -> None:
        if self._is_head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    async def _answer(self, start: Message) -> None:
        headers = MutableHeaders(scope=start)
        headers["ETag"] = f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'
        headers.setdefault("Cache-Control", "private, no-cache")
        if not_modified(self._asked.get("if-none-match"), headers["ETag"]):
            start["status"] = 304
            start["headers"] = [pair for pair in start["headers"] if pair[0].decode().lower() in KEPT]
            self._body = b""
        await self._send(start)
        await self._send({"type": "http.response.body", "body": b"" if self._is_head else self._body})


def _is_document(message: Message) -> bool:
    headers = Headers(raw=message["headers"])
    return message["status"] == 200 and "etag" not in headers and headers.get("content-type") == JSON
