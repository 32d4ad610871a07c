"""Output, errors and exit statuses of commands."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import islice
from types import FrameType
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from bessemer.client import Client
from bessemer.contract.problem import REQUEST_DEFECTS, Problem
from bessemer.errors import (
    AnswerInvalidError,
    BessemerError,
    InvalidArgumentError,
    InvocationFailedError,
    NoWorkerError,
    ProblemError,
    RequestRefusedError,
    UnreachableError,
)

Item = TypeVar("Item")

MAX_LISTED = 10_000

results = Console(highlight=False, soft_wrap=True)
UNVERIFIED = "--option verification=none"
errors = Console(stderr=True, highlight=False, soft_wrap=True)

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Server URL; defaults to BESSEMER_URL, or else port 8000 on this machine.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document.")]


class ExitStatus(IntEnum):
    """The exit status of a command."""

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
    """SIGTERM: an interruption like Ctrl-C, but without a person to ask."""


def exit_status(error: BessemerError) -> ExitStatus:
    """The exit status for an error."""
    if isinstance(error, UnreachableError):
        return ExitStatus.UNREACHABLE
    if isinstance(error, InvocationFailedError | RequestRefusedError):
        return failure_status(error.problem)
    return ExitStatus.USAGE if isinstance(error, InvalidArgumentError) else ExitStatus.FAILED


def failure_status(problem: Problem | None) -> ExitStatus:
    """The exit status for a refused request, a failed compilation or a failed invocation.

    It is the same whether the service finds a defect of the request at once or when a worker runs it.
    """
    is_invalid = problem is not None and problem.code in REQUEST_DEFECTS
    return ExitStatus.USAGE if is_invalid else ExitStatus.FAILED


def joint_status(problems: Iterable[Problem | None]) -> ExitStatus:
    """The exit status of several failed compilations: their own if they agree, else that of a failure."""
    statuses = set(map(failure_status, problems))
    return statuses.pop() if len(statuses) == 1 else ExitStatus.FAILED


def interruption_status(error: KeyboardInterrupt) -> ExitStatus:
    """The exit status after Ctrl-C or SIGTERM, as in a shell."""
    return ExitStatus.TERMINATED if isinstance(error, TerminatedError) else ExitStatus.INTERRUPTED


@contextmanager
def reporting() -> Iterator[None]:
    """Print errors without a traceback, and exit with their status."""
    try:
        with _interruptible():
            yield
    except BessemerError as error:
        show_lines(errors, error_lines(error))
        raise typer.Exit(exit_status(error)) from error
    except KeyboardInterrupt as error:
        print_lines(errors, "interrupted")
        raise typer.Exit(interruption_status(error)) from error
    except BrokenPipeError as error:  # as in `bessemer audit | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitStatus.FAILED) from error
    except OSError as error:
        print_lines(errors, f"error: {error}")
        raise typer.Exit(ExitStatus.FAILED) from error


@contextmanager
def connected(url: str | None) -> Iterator[Client]:
    """A client, with error handling as in ``reporting``."""
    with reporting(), Client(url) as client:
        yield client


def error_lines(error: BessemerError) -> Iterator[str]:
    """The lines that describe an error."""
    if isinstance(error, ProblemError):
        yield from problem_lines(error.problem)
        return
    first, *others = str(error).splitlines() or [type(error).__name__]
    yield f"error: {first}"
    yield from (f"  {line}" for line in others)
    if isinstance(error, NoWorkerError) and error.can_be_unverified:
        yield (
            f"  → Add `{UNVERIFIED}` to compile it unverified, choose another --target, or start such a "
            "worker or device."
        )
    elif isinstance(error, NoWorkerError):
        yield "  → Start such a worker, choose another --target, or drop --no-wait to wait for one."
    elif isinstance(error, AnswerInvalidError):
        yield "  → Check that --url or BESSEMER_URL is a Bessemer server of this client's version."
    elif isinstance(error, UnreachableError):
        yield "  → Start a server with `bessemer serve --data DIR`, or set --url or BESSEMER_URL."


def problem_lines(problem: Problem) -> Iterator[str]:
    """The lines that describe a problem: title, detail, fields, places in the model, advice."""
    where = f" (stage {problem.stage})" if problem.stage else ""
    yield f"error: {problem.title}{where} [{problem.code}]"
    yield from (f"  {_as_options(line)}" for line in problem.detail.splitlines())
    yield from (
        f"  • {entry.field}: {entry.message}"
        for entry in problem.errors
        if entry.message not in problem.detail
    )
    yield from (f"  • {place}" for place in problem.places if str(place) not in problem.detail)
    again = " A retry can help." if problem.retryable else ""
    yield f"  → {_as_options(problem.advice)}{again}"


def _as_options(text: str) -> str:
    """Replace a field of the request in the server's text with the command line's option."""
    return text.replace("`verification: none`", f"`{UNVERIFIED}`")


def print_lines(console: Console, *lines: str) -> None:
    """Print lines without markup or control characters."""
    for line in lines:
        console.print(Text(clean(line)))


def show_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as ``print_lines`` does, with emphasis on the first."""
    for index, line in enumerate(lines):
        console.print(Text(clean(line), style="bold red" if index == 0 else ""))


def print_json(document: BaseModel) -> None:
    """Print a document on standard output, in ASCII: other characters could control the terminal."""
    sys.stdout.write(document.model_dump_json(indent=2, ensure_ascii=True) + "\n")


def print_result(document: BaseModel, lines: Iterable[str], json: bool) -> None:
    """Print a command's result on standard output, as JSON or as lines."""
    if json:
        print_json(document)
    else:
        print_lines(results, *lines)


def clean(text: str) -> str:
    """Text without control characters, which could control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def table(rows: Sequence[Sequence[str]], headings: Sequence[str], empty: str) -> Iterator[str]:
    """Rows below their headings as lines, or a line that says that there are none."""
    return aligned([headings, *rows]) if rows else iter([empty])


def first_of(found: Iterable[Item], limit: int) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """The first items, and if there are more, a line for people that says so."""
    items = tuple(islice(found, limit + 1))
    if len(items) <= limit:
        return items, ()
    return items[:limit], (f"{limit} shown" + ("; --limit shows more" if limit < MAX_LISTED else " of more"),)


def shown_bytes(count: int) -> str:
    """A size in the report's units, such as ``1.4 MiB``."""
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does, so it can clean up."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise TerminatedError
