"""What commands print, and the statuses they end with."""

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from types import FrameType
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from bessemer.client import Client
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.errors import (
    AnswerInvalidError,
    BessemerError,
    InvalidArgumentError,
    NoWorkerError,
    ProblemError,
    UnreachableError,
)

__all__ = [
    "ExitStatus",
    "JsonOption",
    "TerminatedError",
    "UrlOption",
    "aligned",
    "clean",
    "connected",
    "error_lines",
    "errors",
    "exit_status",
    "interruption_status",
    "print_json",
    "problem_lines",
    "reporting",
    "results",
    "show_lines",
    "shown_bytes",
    "tell",
]

results = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

UrlOption = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server; by default BESSEMER_URL, else port 8000 here."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


class ExitStatus(IntEnum):
    """How a command ended."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    WRONG = 4
    SLOWER = 5
    LARGER = 6
    UNSTEADY = 7
    INTERRUPTED = 130
    TERMINATED = 143


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: as Ctrl-C, but nobody is there who could be asked."""


def exit_status(error: BessemerError) -> ExitStatus:
    """The status for an error."""
    if isinstance(error, UnreachableError):
        return ExitStatus.UNREACHABLE
    refused = isinstance(error, ProblemError) and error.problem.code is ErrorCode.REQUEST_INVALID
    return ExitStatus.USAGE if refused or isinstance(error, InvalidArgumentError) else ExitStatus.FAILED


def interruption_status(error: KeyboardInterrupt) -> ExitStatus:
    """The status after Ctrl-C or SIGTERM, as a shell gives it."""
    return ExitStatus.TERMINATED if isinstance(error, TerminatedError) else ExitStatus.INTERRUPTED


@contextmanager
def reporting() -> Iterator[None]:
    """Turn errors into lines for a person and an exit status: never a traceback.

    Raises:
        typer.Exit: the block raised.
    """
    try:
        with _interruptible():
            yield
    except BessemerError as error:
        show_lines(errors, error_lines(error))
        raise typer.Exit(exit_status(error)) from error
    except KeyboardInterrupt as error:
        tell(errors, "interrupted")
        raise typer.Exit(interruption_status(error)) from error
    except OSError as error:
        tell(errors, f"error: {error}")
        raise typer.Exit(ExitStatus.FAILED) from error


@contextmanager
def connected(url: str | None) -> Iterator[Client]:
    """A client, with errors reported as ``reporting`` does."""
    with reporting(), Client(url) as client:
        yield client


def error_lines(error: BessemerError) -> Iterator[str]:
    """An error for a person."""
    if isinstance(error, ProblemError):
        yield from problem_lines(error.problem)
        return
    first, *others = str(error).splitlines() or [type(error).__name__]
    yield f"error: {first}"
    yield from (f"  {line}" for line in others)
    if isinstance(error, NoWorkerError):
        yield ("  → Start such a worker, ask for another --target, or leave out --no-wait to wait for one.")
    elif isinstance(error, AnswerInvalidError):
        yield "  → See that --url or BESSEMER_URL is a Bessemer server's, of this client's version."
    elif isinstance(error, UnreachableError):
        yield "  → Start one with `bessemer serve --data DIR`, or name one with --url or BESSEMER_URL."


def problem_lines(problem: Problem) -> Iterator[str]:
    """A problem for a person: title, detail, fields, places in the model, advice."""
    where = f" (stage {problem.stage})" if problem.stage else ""
    yield f"error: {problem.title}{where} [{problem.code}]"
    yield from (f"  {line}" for line in problem.detail.splitlines())
    yield from (f"  • {entry.field}: {entry.message}" for entry in problem.errors)
    yield from (f"  • {place}" for place in problem.places)
    again = " Trying again can help." if problem.retryable else ""
    yield f"  → {problem.advice}{again}"


def tell(console: Console, *lines: str) -> None:
    """Print lines as they are, without markup and without control characters, whoever sent them."""
    for line in lines:
        console.print(Text(clean(line)))


def show_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as ``tell`` does, the first of them emphasized."""
    for index, line in enumerate(lines):
        console.print(Text(clean(line), style="bold red" if index == 0 else ""))


def print_json(document: BaseModel) -> None:
    """Print a document of the contract on standard output."""
    sys.stdout.write(document.model_dump_json(indent=2) + "\n")


def clean(text: str) -> str:
    """Text without control characters, which could steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines, each column as wide as its widest cell. Nothing is cut to a terminal's width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def shown_bytes(count: int) -> str:
    """A size as a person reads it: ``1.4 MiB``. The report has the same units."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does, so that it leaves nothing behind.

    Raises:
        TerminatedError: SIGTERM came.
    """
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise TerminatedError
