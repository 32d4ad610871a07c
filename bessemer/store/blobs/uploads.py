"""Uploads from an event loop into a thread.

obstore's own asynchronous calls are not used: what their Rust runtime still has to say to a loop that is
gone, or to an interpreter that is ending, aborts the process.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from bessemer.store.blobs.hashing import CHUNK_BYTES
from bessemer.store.errors import UploadStalledError

Result = TypeVar("Result")


@dataclass(frozen=True)
class Pace:
    """How slowly an upload may come, so that those that stand still do not keep others waiting.

    Attributes:
        idle_seconds: how long the next chunk may take to come.
        min_bytes_per_second: of all that came, by the time that was waited for it. Not asked of an upload
            that was waited for no longer than ``idle_seconds`` altogether.
    """

    idle_seconds: float
    min_bytes_per_second: float

    def is_kept(self, received_bytes: int, waited_seconds: float) -> bool:
        """Whether an upload comes fast enough."""
        due_bytes = waited_seconds * self.min_bytes_per_second
        return waited_seconds <= self.idle_seconds or received_bytes >= due_bytes


class BlockReader:
    """Lets one thread iterate over what arrives on this loop, a block at a time; it paces the sender.

    Iterating raises ``UploadStalledError`` where the sender does not keep the pace.
    """

    def __init__(self, chunks: AsyncIterator[bytes], pace: Pace | None) -> None:
        self._chunks = chunks
        self._pace = pace
        self._received_bytes = 0
        self._waited_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._reading: asyncio.Task[bytes] | None = None
        self._cancelled = False

    def __iter__(self) -> Iterator[bytes]:
        while block := asyncio.run_coroutine_threadsafe(self._block(), self._loop).result():
            yield block

    def cancel(self) -> None:
        """End the iteration with ``concurrent.futures.CancelledError``; called on the loop."""
        self._cancelled = True
        if self._reading is not None:
            self._reading.cancel()

    async def _block(self) -> bytes:
        if self._cancelled:
            raise asyncio.CancelledError
        self._reading = asyncio.current_task()
        block = bytearray()
        try:
            while len(block) < CHUNK_BYTES and (chunk := await self._next_chunk()) is not None:
                block += chunk
        finally:
            self._reading = None
        return bytes(block)

    async def _next_chunk(self) -> bytes | None:
        if self._pace is None:
            return await anext(self._chunks, None)
        began = time.monotonic()
        chunk = await self._awaited(self._pace.idle_seconds)
        self._waited_seconds += time.monotonic() - began
        self._received_bytes += len(chunk or b"")
        if chunk is not None and not self._pace.is_kept(self._received_bytes, self._waited_seconds):
            least = f"{self._pace.min_bytes_per_second:g} bytes a second"
            raise UploadStalledError(f"it came more slowly than {least}")
        return chunk

    async def _awaited(self, idle_seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(idle_seconds) as idle:
                return await anext(self._chunks, None)
        except TimeoutError as error:
            if not idle.expired():
                raise
            raise UploadStalledError(f"nothing came for {idle_seconds:g} seconds") from error


async def run_with_chunks(
    threads: ThreadPoolExecutor,
    chunks: AsyncIterator[bytes],
    consume: Callable[[Iterator[bytes]], Result],
    pace: Pace | None,
) -> Result:
    """Run ``consume`` in a thread on the chunks of this loop.

    When this is cancelled, the thread's iteration is ended, and its end awaited.
    """
    reader = BlockReader(chunks, pace)
    work = threads.submit(consume, iter(reader))
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        reader.cancel()
        if not work.cancel():
            await asyncio.gather(ended, return_exceptions=True)
        raise
