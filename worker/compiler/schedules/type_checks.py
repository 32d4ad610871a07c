"""Speeds up TVM's checks of the arguments of schedule primitives.

TVM (0.27) analyzes the type annotation of every argument on every call, which is most of the time that
scheduling a small function takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from tvm.s_tir.schedule import _type_checker

_described = cache(_type_checker._dispatcher)


@contextmanager
def remembered_annotations() -> Iterator[None]:
    """While the context lasts, TVM analyzes each annotation once."""
    with patch.object(_type_checker, "_dispatcher", _described):
        yield
