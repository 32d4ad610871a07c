"""Where a node of an exported program stands in its author's source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bessemer.contract.problem import SourcePlace

if TYPE_CHECKING:
    from torch.fx import Node

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_OWN_FOLDER = str(Path(__file__).resolve().parents[1])
_FOREIGN_PARTS = ("/torch/", "/torch_")


def place_of(node: Node) -> SourcePlace:
    """The operator of a node, its module's path in the model, and the file and line that called it."""
    file, line = innermost_frame(node.meta.get("stack_trace") or "")
    return SourcePlace(
        operator=str(node.target), module_path=_module_path(node) or None, file=file, line=line
    )


def innermost_frame(stack_trace: str) -> tuple[str | None, int | None]:
    """The last frame of a printed stack that is neither torch's nor our own: the author's."""
    for frame in reversed(list(_FRAME.finditer(stack_trace))):
        file = frame["file"]
        if not file.startswith(_OWN_FOLDER) and not any(part in file for part in _FOREIGN_PARTS):
            return file, int(frame["line"])
    return None, None


def describe_place(place: SourcePlace) -> str:
    """A place in one line, such as ``aten.sort.default in layers.0 (model.py:12)``."""
    where = f" in {place.module_path}" if place.module_path else ""
    source = f" ({place.file}:{place.line})" if place.file else ""
    return f"{place.operator}{where}{source}"


def _module_path(node: Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()), ("",))[0])
    return path.removeprefix("L['self'].")
