"""The steps of operations. An operation is a generator that yields steps and does no I/O itself.

A driver in ``bessemer.client.transport`` performs the steps, blocking or not, and sends back the outcomes. So
``Client`` and ``AsyncClient`` share one implementation.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from bessemer.contract.base import Document
from bessemer.contract.error_words import validation_message
from bessemer.contract.problem import Problem
from bessemer.errors import AnswerInvalidError, UnreachableError, problem_error

T = TypeVar("T")
D = TypeVar("D", bound=Document)

SHOWN_BYTES = 200
RETRY_DELAYS_SECONDS = (0.1, 0.4)
RETRYABLE_STATUSES = frozenset({502, 503, 504})
"""Statuses to retry. 429 is not one, because its `Retry-After` is longer than these delays."""


@dataclass(frozen=True)
class Call:
    """One HTTP request. ``path`` is relative to the server's URL.

    ``chunks`` creates the body for each attempt. If the status is 2xx, ``started`` is called, and ``sink``
    receives the chunks of the response body.
    """

    method: str
    path: str
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: Callable[[], Iterator[bytes]] | None = None
    sink: Callable[[bytes], object] | None = None
    started: Callable[[], object] | None = None
    read_timeout_seconds: float | None = None


@dataclass(frozen=True)
class Reply:
    """A response; ``body`` is empty if a sink received it."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Sleep:
    """A pause."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """A blocking call, such as file access, hashing or export. Its outcome is the return value of ``do``."""

    do: Callable[[], Any]


Step = Call | Sleep | Work
Flow = Generator[Step, Any, T]
"""An operation. The outcome of a ``Call`` is a ``Reply``, or the ``httpx.RequestError`` if it failed."""


def retry_delay_seconds(attempt: int, status: int | None) -> float | None:
    """The delay after attempt 1, 2, …; None to give up. ``status`` is None if there was no response."""
    if status is not None and status not in RETRYABLE_STATUSES:
        return None
    return RETRY_DELAYS_SECONDS[attempt - 1] if attempt <= len(RETRY_DELAYS_SECONDS) else None


def exchange(call: Call, accept: frozenset[int] = frozenset()) -> Flow[Reply]:
    """Perform a call, and retry it if that can help.

    Args:
        call: a request that is safe to repeat.
        accept: statuses other than 2xx that are not errors.

    Raises:
        UnreachableError: the server did not answer.
        ProblemError: the server reported an error.
    """
    attempt = 0
    while True:
        attempt += 1
        outcome: Reply | httpx.RequestError = yield call
        status = outcome.status if isinstance(outcome, Reply) else None
        delay = None if status in accept else retry_delay_seconds(attempt, status)
        if delay is None:
            break
        yield Sleep(delay)
    if isinstance(outcome, httpx.RequestError):
        raise UnreachableError(str(outcome) or type(outcome).__name__) from outcome
    if outcome.status not in accept:
        check(outcome.status, outcome.body)
    return outcome


def check(status: int, body: bytes) -> None:
    """Check that the status is 2xx.

    Raises:
        ProblemError: the body is a problem document.
        AnswerInvalidError: the body is something else.
    """
    if 200 <= status < 300:
        return
    try:
        problem = Problem.read_json(body)
    except ValidationError:
        shown = " ".join(body[:SHOWN_BYTES].decode(errors="replace").split())
        raise AnswerInvalidError(
            f"unexpected response with status {status}; is this a Bessemer server? {shown}"
        ) from None
    raise problem_error(problem)


def parse(document: type[D], body: bytes) -> D:
    """Parse a document. Raises ``AnswerInvalidError``, because client and server versions may differ."""
    try:
        return document.read_json(body)
    except ValidationError as error:
        reason = validation_message(error)[:SHOWN_BYTES]
        raise AnswerInvalidError(
            f"the response does not match the schema of {document.__name__}; client and server versions may "
            f"differ: {reason}"
        ) from error


def fetch(document: type[D], call: Call, accept: frozenset[int] = frozenset()) -> Flow[D]:
    """Perform a call as ``exchange`` does, and parse the document in the response."""
    reply = yield from exchange(call, accept)
    return parse(document, reply.body)
