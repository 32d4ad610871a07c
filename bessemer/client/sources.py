"""Models as a user holds them: a path, bytes, a digest, or an object of torch."""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bessemer.contract.base import Digest, is_digest, is_digest_prefix
from bessemer.errors import InvalidArgumentError

__all__ = ["ModelSource", "Progress", "Source", "file_source", "is_shortened_digest", "memory_source"]

ModelSource = str | os.PathLike[str] | bytes | object
"""A path, the bytes of a file, a digest, or an object of torch.

A ``str`` of 64 hexadecimal digits is a digest, any other a path; if there is no such file, the first
characters of a digest (at least 4) are a digest too. Of torch: an ``nn.Module``, an
``ExportedProgram``, a ``ScriptModule`` or an FX ``GraphModule``.
"""

Progress = Callable[[int, int], None]
"""Told while a model is uploaded: bytes sent, bytes in all."""

CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class Source:
    """The bytes of a model, on disk or in memory."""

    digest: Digest
    size_bytes: int
    content: Path | bytes

    def chunks(self, progress: Progress | None) -> Iterator[bytes]:
        """The bytes from the start, piece by piece."""
        sent = 0
        for chunk in _read(self.content):
            yield chunk
            sent += len(chunk)
            if progress:
                progress(sent, self.size_bytes)


def is_shortened_digest(model: ModelSource) -> bool:
    """Whether it is the start of a digest rather than a path: there is no such file."""
    return is_digest_prefix(model) and not is_digest(model) and not Path(model).exists()


def file_source(path: str | os.PathLike[str]) -> Source:
    """Hash a file.

    Raises:
        InvalidArgumentError: there is no such file, or it cannot be read.
    """
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
