"""Routes whose bodies are documents: they are read into memory, so their size is bounded."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive

from app.problems import refuse
from bessemer.contract.problem import ErrorCode

MAX_DOCUMENT_BYTES = 1 << 20


class DocumentRoute(APIRoute):
    """A route that refuses bodies of more than ``MAX_DOCUMENT_BYTES`` while they are read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler behind a bounded body."""
        handler = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handler(Request(request.scope, _bounded(request.receive)))

        return bounded


def _bounded(receive: Receive) -> Receive:
    size_bytes = 0

    async def receive_bounded() -> Message:
        nonlocal size_bytes
        message = await receive()
        size_bytes += len(message.get("body", b""))
        if size_bytes > MAX_DOCUMENT_BYTES:
            raise refuse(
                ErrorCode.REQUEST_TOO_LARGE, f"A document may have {MAX_DOCUMENT_BYTES} bytes at most."
            )
        return message

    return receive_bounded
