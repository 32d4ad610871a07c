"""Uploads from an event loop into a thread.

obstore's own asynchronous calls are not used: what their Rust runtime still has to say to a loop that is
gone, or to an interpreter that is ending, aborts the process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bessemer.store.blobs import CHUNK_BYTES
from bessemer.store.errors import UploadStalledError

Result = TypeVar("Result")


class BlockReader:
    """Lets one thread iterate over what arrives on this loop, a block at a time; it paces the sender.

    Iterating raises ``UploadStalledError`` where a chunk takes longer than ``idle_seconds`` to arrive.
    """

    def __init__(self, chunks: AsyncIterator[bytes], idle_seconds: float | None) -> None:
        self._chunks = chunks
        self._idle_seconds = idle_seconds
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
        try:
            async with asyncio.timeout(self._idle_seconds) as idle:
                return await anext(self._chunks, None)
        except TimeoutError as error:
            if not idle.expired() or self._idle_seconds is None:
                raise
            raise UploadStalledError(self._idle_seconds) from error


async def run_with_chunks(
    threads: ThreadPoolExecutor,
    chunks: AsyncIterator[bytes],
    consume: Callable[[Iterator[bytes]], Result],
    idle_seconds: float | None,
) -> Result:
    """Run ``consume`` in a thread on the chunks of this loop.

    When this is cancelled, the thread's iteration is ended, and its end awaited.
    """
    reader = BlockReader(chunks, idle_seconds)
    work = threads.submit(consume, iter(reader))
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        reader.cancel()
        if not work.cancel():
            await asyncio.gather(ended, return_exceptions=True)
        raise
