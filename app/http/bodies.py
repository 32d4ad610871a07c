"""Routes that read their bodies into memory, within limits on size and time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive

from app.http.json_bodies import read_json
from app.http.problems import refuse
from app.service import Service
from bessemer.contract.problem import ErrorCode

MAX_DOCUMENT_BYTES = 1 << 20


class DocumentRoute(APIRoute):
    """A route that refuses bodies that exceed ``max_bytes``, or that stall."""

    max_bytes: ClassVar[int] = MAX_DOCUMENT_BYTES

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the route's handler to limit the body."""
        handler = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            return await handler(_Document(request.scope, _bounded(in_time(request), self.max_bytes)))

        return bounded


class _Document(Request):
    async def json(self) -> Any:
        return read_json(await self.body())


def in_time(request: Request) -> Receive:
    """Wrap a request's receiver to raise ``RefusalError`` if the body stalls for ``upload_idle_seconds``."""
    service: Service = request.app.state.service
    idle_seconds = service.settings.upload_idle_seconds
    is_complete = False

    async def receive_in_time() -> Message:
        nonlocal is_complete
        try:
            async with asyncio.timeout(None if is_complete else idle_seconds):
                message = await request.receive()
        except TimeoutError as error:
            detail = f"No request data arrived for {idle_seconds:g} seconds."
            raise refuse(ErrorCode.UPLOAD_INCOMPLETE, detail) from error
        is_complete = not message.get("more_body", False)
        return message

    return receive_in_time


def _bounded(receive: Receive, max_bytes: int) -> Receive:
    size_bytes = 0

    async def receive_bounded() -> Message:
        nonlocal size_bytes
        message = await receive()
        size_bytes += len(message.get("body", b""))
        if size_bytes > max_bytes:
            raise refuse(ErrorCode.REQUEST_TOO_LARGE, f"The document exceeds {max_bytes} bytes.")
        return message

    return receive_bounded
