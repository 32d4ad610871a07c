"""Imports a program's modules without garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import modules in this context. Their objects stay, so a collection would only take time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
