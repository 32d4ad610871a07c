"""Sources of models: a path, bytes, a digest, or a torch object."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.base import Digest, is_digest, is_digest_prefix
from bessemer.errors import InvalidArgumentError

ModelSource = str | os.PathLike[str] | bytes | object
"""A path, the bytes of a file, a digest, a torch object, or a dictionary of these for several entry points.

A ``str`` of 64 hexadecimal digits is a digest; any other ``str`` is a path, or else the first 4 or more
characters of a digest if no such file exists. A torch object is an ``nn.Module``, ``ExportedProgram``,
``ScriptModule`` or FX ``GraphModule``. A dictionary has either ``ExportedProgram`` alone, or the paths, bytes
and digests of files.
"""

ExtensionSource = str | os.PathLike[str] | bytes
"""A path, the bytes of a file, or a digest."""

Progress = Callable[[int, int], None]
"""Called during an upload with the bytes sent and the total bytes."""

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class Source:
    """The bytes to upload, on disk or in memory."""

    digest: Digest
    size_bytes: int
    content: Path | bytes

    def chunks(self, progress: Progress | None) -> Iterator[bytes]:
        """Read the bytes in chunks."""
        sent = 0
        for chunk in _read(self.content):
            yield chunk
            sent += len(chunk)
            if progress:
                progress(sent, self.size_bytes)


def is_shortened_digest(model: ModelSource) -> bool:
    """Whether the text is the start of a digest and not the path of a file."""
    return is_digest_prefix(model) and not is_digest(model) and not Path(model).exists()


def file_source(path: str | os.PathLike[str]) -> Source:
    """Hash a file. Raises ``InvalidArgumentError`` if it cannot be read."""
    return _hashed(Path(path))


def memory_source(data: bytes) -> Source:
    """Hash bytes."""
    return _hashed(data)


def _hashed(content: Path | bytes) -> Source:
    hasher, size = hashlib.sha256(), 0
    try:
        for chunk in _read(content):
            hasher.update(chunk)
            size += len(chunk)
    except OSError as error:
        raise InvalidArgumentError(f"{content!s} cannot be read: {error.strerror}") from error
    return Source(hasher.hexdigest(), size, content)


def _read(content: Path | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), CHUNK_BYTES):
            yield content[start : start + CHUNK_BYTES]
        return
    with content.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
