"""Reads calls of custom operators from the source in a TorchScript file, which torch did not load.

Beside each file of code, torch writes where its parts come from: in a script the author's source with its
file and line, in a trace the stack of the call.
"""

from __future__ import annotations

import io
import pickle
import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bessemer.contract.problem import SourcePlace
from worker.compiler.frontend.zip_archive import read_folder
from worker.compiler.source_locations import author_frame

_CALL = re.compile(rb"\bops\.(\w+)\.(\w+)\(")
_RANGES = ".debug_pkl"
_DAMAGED = (pickle.UnpicklingError, ValueError, EOFError, KeyError, TypeError, AttributeError, IndexError)


def source_calls(path: Path) -> Iterator[SourcePlace]:
    """The custom operators that the code of a checked file calls, and the author's lines."""
    entries = read_folder(path, "code")
    for name, code in entries.items():
        if not name.endswith(".py"):
            continue
        ranges = _ranges(entries.get(f"{name}{_RANGES}"))
        for call in _CALL.finditer(code):
            file, line = _origin(ranges, call.start())
            yield SourcePlace(operator=f"{call[1].decode()}::{call[2].decode()}", file=file, line=line)


def _first(value: object, *_: object) -> object:
    return value


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if module == "torch.jit._pickle":
            return _first  # it makes a list of a list, and restores the type of one
        raise pickle.UnpicklingError(f"{module}.{name} is not expected here")


def _ranges(data: bytes | None) -> tuple[tuple[str, ...], list[Any]]:
    """A table of strings, and the ranges of the source by where their code begins."""
    if data is None:
        return (), []
    try:
        _, strings, ranges = _PlainUnpickler(io.BytesIO(data)).load()
        return strings, sorted(ranges, key=lambda each: int(each[0]))
    except _DAMAGED:
        return (), []


def _origin(ranges: tuple[tuple[str, ...], list[Any]], place: int) -> tuple[str, int] | tuple[None, None]:
    strings, starts = ranges
    try:
        _, ((parts, file, first), begin, _), *_ = starts[
            bisect_right([each[0] for each in starts], place) - 1
        ]
        text = "".join(strings[part] for part in parts)
        line = first + text[:begin].count("\n")
        traced = author_frame(text, innermost_first=True)
        return traced if traced[0] else author_frame(f'File "{strings[file]}", line {line}')
    except _DAMAGED:
        return None, None
