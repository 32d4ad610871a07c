"""Finds an operator's place in its author's source from the stacks that torch prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bessemer.contract.problem import SourcePlace

if TYPE_CHECKING:
    from torch.fx import Node

# a frame reads `File "file", line 12, in name` in a script and `file(12): name` in a trace
_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+)|^(?P<traced>/[^\s()]+)\((?P<at>\d+)\):', re.MULTILINE
)
_TORCH_ITSELF = re.compile(
    r"/torch/(nn|jit|fx|export|functional|library|utils|_\w+)\b|^code/__torch__/torch/"
)
_OWN_FOLDER = f"{Path(__file__).resolve().parent}/"


def place_of(node: Node) -> SourcePlace:
    """A node's operator, its module's path in the model, and the file and line of the call."""
    file, line = author_frame(node.meta.get("stack_trace") or "")
    return SourcePlace(
        operator=str(node.target), module_path=_module_path(node) or None, file=file, line=line
    )


def author_frame(stack: str, innermost_first: bool = False) -> tuple[str, int] | tuple[None, None]:
    """The innermost frame of a printed stack that is in neither torch nor Bessemer.

    Args:
        stack: torch's text of a Python, script or trace stack.
        innermost_first: whether the first frame is the innermost.
    """
    frames = [
        (match["file"] or match["traced"], int(match["line"] or match["at"]))
        for match in _FRAME.finditer(stack)
    ]
    authors = [
        (file, line)
        for file, line in frames
        if not file.startswith(_OWN_FOLDER) and not _TORCH_ITSELF.search(file)
    ]
    if not authors:
        return None, None
    return authors[0] if innermost_first else authors[-1]


def _module_path(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()), ("",))[0])
    return path.removeprefix("L['self'].")
