"""Cancels what a command waits for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bessemer.cli.output import error_lines, errors, tell
from bessemer.errors import BessemerError, ConflictError

__all__ = ["ask_to_cancel", "cancelled_if_interrupted"]


@contextmanager
def cancelled_if_interrupted(name: str, cancel: Callable[[], object]) -> Iterator[None]:
    """Cancel what the block waits for when it is interrupted: nobody else has a use for it.

    Raises:
        KeyboardInterrupt: the block was interrupted.
    """
    try:
        yield
    except KeyboardInterrupt:
        ask_to_cancel(name, cancel)
        raise


def ask_to_cancel(name: str, cancel: Callable[[], object]) -> None:
    """Cancel it and say so, or why it could not be; nothing is said of what has ended meanwhile."""
    try:
        cancel()
    except ConflictError:
        return
    except BessemerError as error:
        tell(errors, f"{name} was not cancelled:", *error_lines(error))
        return
    tell(errors, f"asked to cancel {name}")
