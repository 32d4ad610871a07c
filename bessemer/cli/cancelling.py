"""Cancels what a command waits for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bessemer.cli.output import error_lines, errors, tell
from bessemer.errors import BessemerError, ConflictError

__all__ = ["ask_to_cancel", "cancelled_if_interrupted"]


@contextmanager
def cancelled_if_interrupted(name: str, cancel: Callable[[], object]) -> Iterator[None]:
    """Cancel what the block waits for when it is interrupted: no other program uses its result.

    Raises:
        KeyboardInterrupt: the block was interrupted; its notes say what became of the cancellation.
    """
    try:
        yield
    except KeyboardInterrupt as interruption:
        for line in ask_to_cancel(name, cancel):
            interruption.add_note(line)
        raise


def ask_to_cancel(name: str, cancel: Callable[[], object]) -> tuple[str, ...]:
    """Cancel it, and say so or why that failed; say nothing where it had already ended.

    Returns:
        The lines that were printed.
    """
    try:
        cancel()
    except ConflictError:
        return ()
    except BessemerError as error:
        said = (f"{name} was not cancelled:", *error_lines(error))
    else:
        said = (f"asked to cancel {name}",)
    tell(errors, *said)
    return said
