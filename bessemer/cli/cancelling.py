"""Cancels what a command waits for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bessemer.cli.output import errors, tell
from bessemer.errors import ConflictError

__all__ = ["ask_to_cancel", "cancelled_if_interrupted"]


@contextmanager
def cancelled_if_interrupted(name: str, cancel: Callable[[], object]) -> Iterator[None]:
    """Cancel what the block waits for when it is interrupted: nobody else has a use for it."""
    try:
        yield
    except KeyboardInterrupt:
        ask_to_cancel(name, cancel)
        raise


def ask_to_cancel(name: str, cancel: Callable[[], object]) -> None:
    """Cancel it and say so; nothing is said of what has ended meanwhile."""
    try:
        cancel()
    except ConflictError:
        return
    tell(errors, f"asked to cancel {name}")
