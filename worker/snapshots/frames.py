"""Appends texts to a file, one zstandard frame each, within limits."""

from __future__ import annotations

from pathlib import Path

import zstandard

from bessemer.contract.ir import MAX_TEXT_BYTES, IrText

_LEVEL = 3


class FrameWriter:
    """Cuts a text that exceeds the limit of one text, or what is left of the limit of all texts."""

    def __init__(self, path: Path, max_total_bytes: int) -> None:
        self._path = path
        self._offset = 0
        self._left_bytes = max_total_bytes

    def append(self, text: str) -> IrText:
        """Write a text, in whole lines. An empty one, and one without room, has no frame."""
        data = text.encode()
        kept = _cut(data, min(MAX_TEXT_BYTES, self._left_bytes))
        whole_bytes = len(data) if len(kept) < len(data) else None
        if not kept:
            return IrText(offset=0, packed_bytes=0, text_bytes=0, whole_bytes=whole_bytes)
        self._left_bytes -= len(kept)
        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(kept)
        with self._path.open("ab") as file:
            file.write(packed)
        offset, self._offset = self._offset, self._offset + len(packed)
        return IrText(offset=offset, packed_bytes=len(packed), text_bytes=len(kept), whole_bytes=whole_bytes)


def _cut(data: bytes, limit: int) -> bytes:
    """At most ``limit`` bytes, in whole lines."""
    return data if len(data) <= limit else data[: data.rfind(b"\n", 0, limit) + 1]
