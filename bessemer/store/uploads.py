"""Uploads from an event loop into a thread.

obstore's own asynchronous calls are not used: what their Rust runtime still has to say to a loop that is
gone, or to an interpreter that is ending, aborts the process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bessemer.store.blobs import CHUNK_BYTES

Result = TypeVar("Result")


class BlockReader:
    """Lets one thread iterate over what arrives on this loop, a block at a time; it paces the sender."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
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
            async for chunk in self._chunks:
                block += chunk
                if len(block) >= CHUNK_BYTES:
                    break
        finally:
            self._reading = None
        return bytes(block)


async def run_with_chunks(
    threads: ThreadPoolExecutor, chunks: AsyncIterator[bytes], consume: Callable[[Iterator[bytes]], Result]
) -> Result:
    """Run ``consume`` in a thread on the chunks of this loop.

    When this is cancelled, the thread's iteration is ended, and its end awaited.
    """
    reader = BlockReader(chunks)
    work = threads.submit(consume, iter(reader))
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        reader.cancel()
        if not work.cancel():
            await asyncio.gather(ended, return_exceptions=True)
        raise
