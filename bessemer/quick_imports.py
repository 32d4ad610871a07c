"""Imports of a program's modules, without collections of garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import modules in this context. Their objects stay, so collecting garbage only takes time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
