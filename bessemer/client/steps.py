"""The steps that an operation is made of. It is a generator that does no input or output itself.

It yields steps and is sent their outcomes; a driver (``bessemer.client.transport``) performs them, blocking
or not. So the logic of the client exists once, for ``Client`` and ``AsyncClient``.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from bessemer.contract.base import Document
from bessemer.contract.problem import Problem
from bessemer.errors import AnswerInvalidError, UnreachableError, problem_error

__all__ = [
    "Call",
    "Flow",
    "Reply",
    "Sleep",
    "Step",
    "Work",
    "check",
    "exchange",
    "parse",
    "retry_delay_seconds",
]

T = TypeVar("T")
D = TypeVar("D", bound=Document)

SHOWN_BYTES = 200
RETRY_DELAYS_SECONDS = (0.1, 0.4)
RETRYABLE_STATUSES = frozenset({502, 503, 504})


@dataclass(frozen=True)
class Call:
    """One HTTP request. ``path`` is relative to the server's URL.

    ``chunks`` makes the body anew for each attempt; ``sink`` takes the body of a good answer piece by piece,
    after ``started`` was called.
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
    """An answer; ``body`` is empty where a sink took it."""

    status: int
    body: bytes


@dataclass(frozen=True)
class Sleep:
    """A pause."""

    seconds: float


@dataclass(frozen=True)
class Work:
    """Something that blocks: disk, hashing, export. Its outcome is what ``do`` returns."""

    do: Callable[[], Any]


Step = Call | Sleep | Work
Flow = Generator[Step, Any, T]
"""An operation. The outcome of a ``Call`` is a ``Reply``, or the ``httpx.RequestError`` in its place."""


def retry_delay_seconds(attempt: int, status: int | None) -> float | None:
    """How long to wait before another attempt, or None to leave it.

    Args:
        attempt: attempts made so far, from 1.
        status: of the answer, or None where there was none.
    """
    if status is not None and status not in RETRYABLE_STATUSES:
        return None
    return RETRY_DELAYS_SECONDS[attempt - 1] if attempt <= len(RETRY_DELAYS_SECONDS) else None


def exchange(call: Call, accept: frozenset[int] = frozenset()) -> Flow[Reply]:
    """Perform a call, again where it can help.

    Args:
        call: must be safe to repeat.
        accept: statuses besides 2xx that are answers, not errors.

    Raises:
        UnreachableError: no answer came.
        ProblemError: the server said no.
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
    """Return where the status is 2xx.

    Raises:
        ProblemError: the body is a problem document.
        AnswerInvalidError: it is not, so that something else than Bessemer answered.
    """
    if 200 <= status < 300:
        return
    try:
        problem = Problem.read_json(body)
    except ValidationError:
        shown = " ".join(body[:SHOWN_BYTES].decode(errors="replace").split())
        raise AnswerInvalidError(f"something else than Bessemer answered with {status}: {shown}") from None
    raise problem_error(problem)


def parse(document: type[D], body: bytes) -> D:
    """Read a document of the contract.

    Raises:
        AnswerInvalidError: the body is no such document; client and server may be of different versions.
    """
    try:
        return document.read_json(body)
    except ValidationError as error:
        name = document.__name__
        hint = "compare the versions of client and server"
        raise AnswerInvalidError(
            f"the answer is no {name} that this client knows; {hint}: {error}"
        ) from error
