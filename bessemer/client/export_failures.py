"""What ``torch.export`` says where it fails, in the words of the model's author."""

import io
import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import bessemer
from bessemer.contract.data_dependence import dependence_on_values

__all__ = ["said_by_torch", "torch_kept_quiet"]

BESSEMER = Path(bessemer.__file__).parent
HINTS = ("\nFor more information, run with TORCH_LOGS", "\n\nThe error above occurred when calling")
STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}/"
PACKAGES = "/site-packages/"
"""Below the standard library where Python is installed without a virtual environment."""
TORCH = "torch"
GRAPH = "partial_fx_graph"
"""The attribute of an error that torch prints to standard error besides raising it."""


def said_by_torch(error: BaseException, torch_folder: Path) -> str:
    """The kind of an error, its message without torch's hints, and the author's line, where it has one.

    Args:
        error: what torch raised.
        torch_folder: where torch lies: its own lines are not the author's.
    """
    place = _place(error, torch_folder)
    depends = dependence_on_values(error)
    if depends is not None:
        return f"{depends}{place}: use torch.where or torch.cond"
    text = str(error)
    for hint in HINTS:
        text = text.partition(hint)[0]
    kind = type(error).__name__
    return f"{kind}: {text.strip()}{place}" if text.strip() else f"{kind}{place}"


@contextmanager
def torch_kept_quiet() -> Iterator[None]:
    """Keep away what torch logs, and the graph that it prints where it fails; all else is passed on."""
    printed, graph = io.StringIO(), None
    try:
        with _unlogged(), redirect_stderr(printed):
            yield
    except Exception as error:
        graph = getattr(error, GRAPH, None)
        raise
    finally:
        text = printed.getvalue()
        sys.stderr.write(text.replace(f"{graph}\n", "") if graph else text)


@contextmanager
def _unlogged() -> Iterator[None]:
    """torch gives some of its loggers handlers of their own."""
    known = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if _is_torch(name)]
    handlers = [(log, log.handlers) for log in known if log.handlers]
    for log, _ in handlers:
        log.handlers = [logging.NullHandler()]
    try:
        yield
    finally:
        for log, own in handlers:
            log.handlers = own


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] == TORCH


def _is_of_python(file: str) -> bool:
    return file.startswith(STANDARD_LIBRARY) and PACKAGES not in file


def _place(error: BaseException, torch_folder: Path) -> str:
    installed = (f"{BESSEMER}/", f"{torch_folder}/", "<")
    frames = traceback.extract_tb(error.__traceback__)
    authors = [
        frame
        for frame in frames
        if not frame.filename.startswith(installed) and not _is_of_python(frame.filename)
    ]
    return f" ({Path(authors[-1].filename).name}:{authors[-1].lineno})" if authors else ""
