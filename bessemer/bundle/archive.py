"""Reads a bundle's archive. Content passes through two buffers, because tarfile's own copies are slow.

While one buffer is filled and written, another thread hashes the other::

    buffer 1    fill, write │ hash        │ fill, write │ hash
    buffer 2                │ fill, write │ hash        │ fill, write
"""

import hashlib
import tarfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import cast

import zstandard

MAX_WINDOW_BYTES = 1 << 27
COPY_BYTES = 4 << 20
"""Linux caches each write in pages of up to 2 MiB, and maps libraries with the same pages."""

_READ_BYTES = 1 << 20


@contextmanager
def open_archive(archive: Path) -> Iterator["BundleArchive"]:
    """Open a ``.tar.zst``, which may be hostile: iterating it can raise any exception."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    with (
        archive.open("rb") as packed,
        decompressor.stream_reader(packed, read_size=_READ_BYTES, read_across_frames=True) as stream,
        ThreadPoolExecutor(1) as hasher,
    ):
        source = _Forward(stream)
        with tarfile.open(fileobj=cast("tarfile._Fileobj", source), mode="r:") as tar:
            yield BundleArchive(tar, source, hasher)


class BundleArchive:
    """The entries of an open archive, in order."""

    def __init__(self, tar: tarfile.TarFile, source: "_Forward", hasher: ThreadPoolExecutor) -> None:
        self._tar = tar
        self._source = source
        self._hasher = hasher

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        return iter(self._tar)

    def extract(self, member: tarfile.TarInfo, path: Path) -> str:
        """Write the content of the last entry, a regular file, to a new file, and return its SHA-256.

        Raises:
            FileExistsError: ``path`` exists.
            tarfile.ReadError: the archive ends too early.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._source.seek(member.offset_data)
        digest = hashlib.sha256()
        hashed: Future[None] | None = None
        with path.open("xb", buffering=0) as file:
            for block in self._source.blocks(member.size):
                if hashed is not None:
                    hashed.result()
                hashed = self._hasher.submit(digest.update, block)
                while block:
                    block = block[file.write(block) :]
        if hashed is not None:
            hashed.result()
        return digest.hexdigest()


class _Forward:
    """A stream that tarfile can read as a file. It only seeks forward."""

    def __init__(self, stream: zstandard.ZstdDecompressionReader) -> None:
        self._stream = stream
        self._position = 0
        self._buffers = cycle([memoryview(bytearray(COPY_BYTES)) for _ in range(2)])

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("an entry lies before the one that was read")
        for _ in self.blocks(position - self._position):
            pass
        return position

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes, in pieces, because a header may claim any size.

        Raises:
            tarfile.ReadError: the header is longer than any header of a bundle.
        """
        if size > _READ_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        pieces = []
        while size and (piece := self._stream.read(min(size, _READ_BYTES))):
            pieces.append(piece)
            size -= len(piece)
            self._position += len(piece)
        return b"".join(pieces)

    def blocks(self, size: int) -> Iterator[memoryview]:
        """The next ``size`` bytes; each block is valid until two more are read."""
        while size > 0:
            buffer, wanted, filled = next(self._buffers), min(size, COPY_BYTES), 0
            while filled < wanted:
                count = self._stream.readinto(buffer[filled:wanted])
                if not count:
                    raise tarfile.ReadError("unexpected end of data")
                filled += count
            self._position += wanted
            size -= wanted
            yield buffer[:wanted]
