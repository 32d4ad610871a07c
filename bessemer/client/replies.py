"""Reads the server's answers."""

from typing import TypeVar

from pydantic import ValidationError

from bessemer.contract.base import Document
from bessemer.contract.problem import Problem
from bessemer.errors import AnswerInvalidError, problem_error

__all__ = ["check", "parse"]

D = TypeVar("D", bound=Document)
SHOWN_BYTES = 200


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
