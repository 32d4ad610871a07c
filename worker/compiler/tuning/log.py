"""MetaSchedule's log: a file in scratch, nothing on the job's own output."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBRARY = "tvm.s_tir.meta_schedule"


def tuning_logger() -> logging.Logger:
    """The logger of everything that searches."""
    return logging.getLogger(f"{_LIBRARY}.bessemer")


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Send the search's log to a file while the context lasts."""
    logger = logging.getLogger(_LIBRARY)
    handler = logging.FileHandler(path)
    propagated, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.propagate, logger.level = propagated, level
