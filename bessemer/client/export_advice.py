"""Advice on models that ``torch.export`` is known to refuse."""

import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from bessemer.contract.packing import UNPACKED
from bessemer.contract.quantization import FLOAT_MODEL, FLOAT_WEIGHTS

__all__ = ["advice_on_export", "methods_but_forward"]

SCRIPT = "torch.jit._script"
UNPICKLED_SCRIPT = "Tried to serialize object __torch__"
"""What torch says of an FX graph that holds a script module."""

QUANTIZED = "torch.ao.nn.quantized"
TORCHAO = "torchao"
PACKING = ("pack_padded_sequence", "pad_packed_sequence")
PACKED = "batch_sizes"
FORWARD = "forward"
MAX_NAMES = 5

UNSCRIPTED = (
    "which torch cannot trace: replace them by the modules that they were scripted from, or script "
    "the whole model with `torch.jit.script`"
)


def advice_on_export(module: Any, error: BaseException) -> str | None:
    """The obstacle in the module and its remedy; None if no obstacle is known.

    Args:
        module: of torch, in whose export the error was raised.
        error: what torch raised.
    """
    if any(_is_packing(frame) for frame, _ in traceback.walk_tb(error.__traceback__)):
        return UNPACKED
    return next(_obstacles(module, error), None)


def methods_but_forward(script: Any) -> tuple[str, ...]:
    """The public methods of a script module, ``forward`` left out."""
    names = script._c._method_names()
    return tuple(sorted(name for name in names if name != FORWARD and not name.startswith("_")))


def _is_packing(frame: FrameType) -> bool:
    """Whether a call packs sequences, or is torch's own of a recurrent layer on packed ones."""
    return frame.f_code.co_name in PACKING or frame.f_locals.get(PACKED) is not None


def _obstacles(module: Any, error: BaseException) -> Iterator[str]:
    children = [(name, type(child).__module__) for name, child in module.named_modules() if name]
    tensors = [(name, type(tensor).__module__) for name, tensor in module.named_parameters()]
    if quantized := _outermost(children, QUANTIZED):
        yield f"it has quantized submodules ({quantized}): {FLOAT_MODEL}"
    if quantized := _outermost(tensors, TORCHAO):
        yield f"it holds torchao's quantized tensors ({quantized}): {FLOAT_WEIGHTS}"
    if scripted := _outermost(children, SCRIPT):
        yield f"it has script modules as submodules ({scripted}), {UNSCRIPTED}"
    if UNPICKLED_SCRIPT in str(error):
        yield f"it has script modules as submodules, {UNSCRIPTED}"


def _outermost(members: list[tuple[str, str]], package: str) -> str:
    """The names of those whose class a package defines, without what lies within another of them."""
    found: list[str] = []
    for name, defined_in in members:
        if defined_in.startswith(package) and not any(name.startswith(f"{outer}.") for outer in found):
            found.append(name)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(map(repr, found[:MAX_NAMES])) + more
