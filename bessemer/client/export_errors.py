"""Explain failures of ``torch.export``: the message, the author's line, and the known remedies."""

import io
import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import FrameType
from typing import Any

import bessemer
from bessemer.contract.model_advice import (
    FLOAT_MODEL,
    PLAIN_WEIGHTS,
    UNPACKED,
    UNROLLED,
    advice_on_example_dtypes,
    dependence_on_values,
)

BESSEMER = Path(bessemer.__file__).parent
HINTS = ("\nFor more information, run with TORCH_LOGS", "\n\nThe error above occurred when calling")
STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}/"
PACKAGES = "/site-packages/"
"""A folder of the standard library if Python runs without a virtual environment."""
TORCH = "torch"
GRAPH = "partial_fx_graph"
"""The attribute of torch's error that torch also prints to standard error."""

SCRIPT = "torch.jit._script"
UNPICKLED_SCRIPT = "Tried to serialize object __torch__"
"""Part of torch's message for an FX graph that contains a script module."""

QUANTIZED = "torch.ao.nn.quantized"
TORCHAO = "torchao"
RECURRENT = "torch.nn.modules.rnn"
FIXED_SIZE = "specialized it to be a constant"
"""Part of torch's message for a model that does not keep a size dynamic."""

PACKING = ("pack_padded_sequence", "pad_packed_sequence")
PACKED = "batch_sizes"
FORWARD = "forward"
MAX_NAMES = 5

UNSCRIPTED = (
    "which torch cannot trace: replace them with the modules that they were scripted from, or script "
    "the whole model with `torch.jit.script`"
)


def torch_message(error: BaseException, torch_folder: Path) -> str:
    """An error's type, its message without torch's hints, and the author's line if it has one.

    Lines in ``torch_folder`` are not the author's.
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
def quiet_torch() -> Iterator[None]:
    """Suppress torch's logs and the graph that it prints when it fails, but no other output."""
    printed, graph = io.StringIO(), None
    try:
        with _logging_disabled(), redirect_stderr(printed):
            yield
    except Exception as error:
        graph = getattr(error, GRAPH, None)
        raise
    finally:
        text = printed.getvalue()
        sys.stderr.write(text.replace(f"{graph}\n", "") if graph else text)


def advice_on_export(module: Any, error: BaseException) -> str | None:
    """The known obstacle in a module whose export failed and its remedy, or None."""
    if any(_is_packing(frame) for frame, _ in traceback.walk_tb(error.__traceback__)):
        return UNPACKED
    return next(_obstacles(module, error), None)


def methods_but_forward(script: Any) -> tuple[str, ...]:
    """The public methods of a script module, without ``forward``."""
    names = script._c._method_names()
    return tuple(sorted(name for name in names if name != FORWARD and not name.startswith("_")))


@contextmanager
def _logging_disabled() -> Iterator[None]:
    """Silence torch's loggers, some of which have their own handlers."""
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


def _is_standard_library(file: str) -> bool:
    return file.startswith(STANDARD_LIBRARY) and PACKAGES not in file


def _place(error: BaseException, torch_folder: Path) -> str:
    installed = (f"{BESSEMER}/", f"{torch_folder}/", "<")
    frames = traceback.extract_tb(error.__traceback__)
    authors = [
        frame
        for frame in frames
        if not frame.filename.startswith(installed) and not _is_standard_library(frame.filename)
    ]
    return f" ({Path(authors[-1].filename).name}:{authors[-1].lineno})" if authors else ""


def _is_packing(frame: FrameType) -> bool:
    """Whether a call packs sequences, or runs a recurrent layer on packed ones."""
    return frame.f_code.co_name in PACKING or frame.f_locals.get(PACKED) is not None


def _obstacles(module: Any, error: BaseException) -> Iterator[str]:
    children = [(name, type(child).__module__) for name, child in module.named_modules() if name]
    tensors = [(name, type(tensor).__module__) for name, tensor in module.named_parameters()]
    if quantized := _outermost(children, QUANTIZED):
        yield f"it has quantized submodules ({quantized}): {FLOAT_MODEL}"
    if quantized := _outermost(tensors, TORCHAO):
        yield f"it holds torchao's quantized tensors ({quantized}): {PLAIN_WEIGHTS}"
    if scripted := _outermost(children, SCRIPT):
        yield f"it has script modules as submodules ({scripted}), {UNSCRIPTED}"
    if UNPICKLED_SCRIPT in str(error):
        yield f"it has script modules as submodules, {UNSCRIPTED}"
    if FIXED_SIZE in str(error) and any(type(part).__module__ == RECURRENT for part in module.modules()):
        yield UNROLLED
    if advice := advice_on_example_dtypes(str(error)):
        yield advice


def _outermost(members: list[tuple[str, str]], package: str) -> str:
    """The names of the outermost members whose class a package defines."""
    found: list[str] = []
    for name, defined_in in members:
        if defined_in.startswith(package) and not any(name.startswith(f"{outer}.") for outer in found):
            found.append(name)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(map(repr, found[:MAX_NAMES])) + more
