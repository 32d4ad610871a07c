"""Drivers that perform the steps of operations over HTTP, one blocking and one asynchronous."""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx

from bessemer.client.ci_token import token_of_environment
from bessemer.client.steps import Call, Flow, Reply, Sleep, Step, Work
from bessemer.errors import InvalidArgumentError, UnreachableError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_SECONDS = 30.0
URL_VARIABLE = "BESSEMER_URL"
KEY_VARIABLE = "BESSEMER_API_KEY"
KEY_FILE_VARIABLE = "BESSEMER_API_KEY_FILE"
TRACEPARENT = "traceparent"
TRACEPARENT_VARIABLE = "TRACEPARENT"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
HEADERS = {"User-Agent": "bessemer-client", "Accept": "application/json, application/problem+json, */*"}


class Page(Protocol[T_co]):
    """A page of a list."""

    @property
    def items(self) -> tuple[T_co, ...]:
        """The entries."""
        ...

    @property
    def next(self) -> str | None:
        """The cursor of the next page; None on the last one."""
        ...


@dataclass(frozen=True)
class Settings:
    """The server's URL, the timeout for each part of a response, and the caller's credentials."""

    url: httpx.URL
    timeout_seconds: float
    auth: httpx.Auth | None = None

    @property
    def through_proxy(self) -> bool:
        """Whether to use the environment's proxies; never for this machine."""
        return self.url.host not in LOOPBACK_HOSTS


def make_settings(url: str | None, timeout_seconds: float, api_key: str | None = None) -> Settings:
    """Settings for a URL, which defaults to BESSEMER_URL, or else port 8000 on this machine.

    The key defaults to BESSEMER_API_KEY, or else to the content of the file BESSEMER_API_KEY_FILE, or else to
    a token of GitHub Actions if BESSEMER_OIDC_AUDIENCE is set.

    Raises:
        InvalidArgumentError: the URL is not an http or https URL, or the key cannot be read or sent.
    """
    text = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InvalidArgumentError(f"'{text}' is not a valid URL: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidArgumentError(f"'{text}' is not a URL such as {DEFAULT_URL}")
    key = api_key or _key_of_environment()
    return Settings(parsed, timeout_seconds, token_of_environment() if key is None else _ApiKey(key))


def _key_of_environment() -> str | None:
    key = os.environ.get(KEY_VARIABLE)
    path = os.environ.get(KEY_FILE_VARIABLE)
    if key or not path:
        return key or None
    try:
        found = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{KEY_FILE_VARIABLE}={path} cannot be read: {error}") from error
    if not found:
        raise InvalidArgumentError(f"{KEY_FILE_VARIABLE}={path} is empty")
    return found


class _ApiKey(httpx.Auth):
    """Adds an API key to each request."""

    def __init__(self, key: str) -> None:
        if re.fullmatch(r"[!-~]+", key) is None:
            raise InvalidArgumentError("the API key contains spaces or characters other than ASCII")
        self._header = f"Bearer {key}"

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request with the key."""
        request.headers["Authorization"] = self._header
        yield request


def trace_headers() -> dict[str, str]:
    """The trace header for the caller's span: OpenTelemetry's current span, or the variable ``TRACEPARENT``.

    If the caller's program has not imported OpenTelemetry, it has no current span.
    """
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace else None
    if context is not None and context.is_valid:
        text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
        return {TRACEPARENT: text}
    given = os.environ.get(TRACEPARENT_VARIABLE)
    return {TRACEPARENT: given} if given else {}


class _Driver:
    """What both drivers have in common."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def address(self) -> str:
        """The server's URL, with its password masked, which only ``repr`` of the URL does."""
        return repr(self._settings.url).removeprefix("URL('").removesuffix("')")

    @property
    def console(self) -> str:
        """The address of the server's console, without a user name and a password."""
        return f"{str(self._settings.url.copy_with(userinfo=b'')).rstrip('/')}/console"

    def _request(self, call: Call) -> dict[str, Any]:
        """The arguments of ``build_request``, without the content."""
        seconds = self._settings.timeout_seconds
        return {
            "method": call.method,
            "url": call.path,
            "params": call.params,
            "headers": {**trace_headers(), **call.headers},
            "timeout": httpx.Timeout(seconds, read=call.read_timeout_seconds or seconds),
        }

    @contextmanager
    def _performing(self, flow: Flow[T]) -> Iterator[None]:
        """Close an operation after the block, and add the server's URL to its errors."""
        try:
            with closing(flow):
                yield
        except UnreachableError as error:
            text = f"cannot reach a Bessemer server at {self.address}: {error}"
            raise type(error)(text) from error.__cause__


class Transport(_Driver):
    """The blocking driver."""

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        super().__init__(settings)
        self._http = httpx.Client(
            base_url=settings.url,
            headers=HEADERS,
            auth=settings.auth,
            transport=transport,
            trust_env=settings.through_proxy,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, flow: Flow[T]) -> T:
        """Perform an operation, and raise its errors."""
        with self._performing(flow):
            outcome: Any = None
            while True:
                try:
                    step = flow.send(outcome)
                except StopIteration as end:
                    result: T = end.value
                    return result
                outcome = self._perform(step)

    def items(self, page: Callable[[str | None], Flow[Page[T]]]) -> Iterator[T]:
        """The entries of all pages of a list; ``page`` gets the page at a cursor."""
        cursor: str | None = None
        while True:
            found = self.run(page(cursor))
            yield from found.items
            if (cursor := found.next) is None:
                return

    @contextmanager
    def stream(self, call: Call) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Send a request, and open its response as status and chunks. Raises ``httpx.RequestError``."""
        body = call.chunks() if call.chunks else None
        request = self._http.build_request(**self._request(call), content=body)
        response = self._http.send(request, stream=True)
        try:
            yield response.status_code, response.iter_bytes()
        finally:
            response.close()

    def _perform(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            time.sleep(step.seconds)
            return None
        if isinstance(step, Work):
            return step.do()
        try:
            return self._send(step)
        except httpx.RequestError as error:
            return error

    def _send(self, call: Call) -> Reply:
        with self.stream(call) as (status, chunks):
            if call.sink is None or not 200 <= status < 300:
                return Reply(status, b"".join(chunks))
            if call.started is not None:
                call.started()
            for chunk in chunks:
                call.sink(chunk)
            return Reply(status, b"")


async def _read_in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
        yield chunk


class AsyncTransport(_Driver):
    """The asynchronous driver, which runs blocking work in threads."""

    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(settings)
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            headers=HEADERS,
            auth=settings.auth,
            transport=transport,
            trust_env=settings.through_proxy,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Perform an operation, and raise its errors."""
        with self._performing(flow):
            outcome: Any = None
            while True:
                try:
                    step = flow.send(outcome)
                except StopIteration as end:
                    result: T = end.value
                    return result
                outcome = await self._perform(step)

    async def items(self, page: Callable[[str | None], Flow[Page[T]]]) -> AsyncIterator[T]:
        """The entries of all pages of a list; ``page`` gets the page at a cursor."""
        cursor: str | None = None
        while True:
            found = await self.run(page(cursor))
            for item in found.items:
                yield item
            if (cursor := found.next) is None:
                return

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """Send a request, and open its response as status and chunks. Raises ``httpx.RequestError``."""
        body = _read_in_thread(call.chunks()) if call.chunks else None
        request = self._http.build_request(**self._request(call), content=body)
        response = await self._http.send(request, stream=True)
        try:
            yield response.status_code, response.aiter_bytes()
        finally:
            await response.aclose()

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Work):
            return await asyncio.to_thread(step.do)
        try:
            return await self._send(step)
        except httpx.RequestError as error:
            return error

    async def _send(self, call: Call) -> Reply:
        async with self.stream(call) as (status, chunks):
            if call.sink is None or not 200 <= status < 300:
                return Reply(status, b"".join([chunk async for chunk in chunks]))
            if call.started is not None:
                call.started()
            async for chunk in chunks:
                await asyncio.to_thread(call.sink, chunk)
            return Reply(status, b"")
