"""Ctrl-C and SIGTERM: either ends a command in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["TerminatedError", "interruptible"]


class TerminatedError(KeyboardInterrupt):
    """SIGTERM came: as Ctrl-C, but nobody is there who could be asked."""


@contextmanager
def interruptible() -> Iterator[None]:
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
