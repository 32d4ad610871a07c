"""A faster ``inspect.stack``, which TVM calls for every function of TVMScript that it parses."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType


@contextmanager
def quick_stack() -> Iterator[None]:
    """Speed up ``inspect.stack``: every TVMScript function calls it, and uses only frames and lines."""
    original = inspect.stack
    inspect.stack = _bare_stack
    try:
        yield
    finally:
        inspect.stack = original


def _bare_stack(context: int = 1) -> list[inspect.FrameInfo]:
    """The caller's frames like ``inspect.stack``, without searching every module for their files.

    TVM looks at a frame's line to see whether a function is in the class of an IRModule.
    """
    return [
        inspect.FrameInfo(
            frame, frame.f_code.co_filename, line, frame.f_code.co_name, _line_of(frame, line), 0
        )
        for frame, line in walk_stack(sys._getframe(1))
    ]


def _line_of(frame: FrameType, line: int) -> list[str] | None:
    text = linecache.getline(frame.f_code.co_filename, line)
    return [text] if text else None
