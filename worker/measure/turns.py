"""Turns at measuring: only one job on a host measures at a time. A job's supervisor grants its turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Turns(Protocol):
    """Grants a job its turns to measure."""

    def turn(self) -> AbstractContextManager[None]:
        """While the context lasts, no other job on this host measures. Contexts may nest."""
        ...


class AnyTime:
    """For a process that does not share its host."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Turns.turn``."""
        yield


ANY_TIME = AnyTime()


class GrantedTurns:
    """Turns that another process grants.

    Args:
        request: asks for a turn.
        end: ends it.
        grants: a descriptor on which one byte arrives for each granted turn.
    """

    def __init__(self, request: Callable[[], None], end: Callable[[], None], grants: int) -> None:
        self._request = request
        self._end = end
        self._grants = grants
        self._depth = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Turns.turn``."""
        if self._depth == 0:
            self._request()
            os.read(self._grants, 1)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._end()
