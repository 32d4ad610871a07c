"""Uploads from an event loop into a thread.

obstore's asynchronous calls are not used: when their Rust runtime calls back into a closed loop, or into an
interpreter that is exiting, it aborts the process.
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
class MinimumRate:
    """The minimum rate of an upload, so that stalled uploads do not block others.

    Attributes:
        idle_seconds: how long the next chunk may take.
        min_bytes_per_second: received bytes per second of waiting; not enforced until the total wait exceeds
            ``idle_seconds``.
    """

    idle_seconds: float
    min_bytes_per_second: float

    def is_met(self, received_bytes: int, waited_seconds: float) -> bool:
        """Whether an upload is fast enough."""
        due_bytes = waited_seconds * self.min_bytes_per_second
        return waited_seconds <= self.idle_seconds or received_bytes >= due_bytes


class BlockReader:
    """Lets a thread iterate over chunks that arrive on this loop, in blocks, with back-pressure.

    Iterating raises ``UploadStalledError`` if the sender is slower than ``rate``.
    """

    def __init__(self, chunks: AsyncIterator[bytes], rate: MinimumRate | None) -> None:
        self._chunks = chunks
        self._rate = rate
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
        if self._rate is None:
            return await anext(self._chunks, None)
        began = time.monotonic()
        chunk = await self._awaited(self._rate.idle_seconds)
        self._waited_seconds += time.monotonic() - began
        self._received_bytes += len(chunk or b"")
        if chunk is not None and not self._rate.is_met(self._received_bytes, self._waited_seconds):
            least = f"{self._rate.min_bytes_per_second:g} bytes a second"
            raise UploadStalledError(f"it is slower than {least}")
        return chunk

    async def _awaited(self, idle_seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(idle_seconds) as idle:
                return await anext(self._chunks, None)
        except TimeoutError as error:
            if not idle.expired():
                raise
            raise UploadStalledError(f"no data for {idle_seconds:g} seconds") from error


async def run_with_chunks(
    threads: ThreadPoolExecutor,
    chunks: AsyncIterator[bytes],
    consume: Callable[[Iterator[bytes]], Result],
    rate: MinimumRate | None,
) -> Result:
    """Run ``consume`` in a thread on the chunks of this loop.

    On cancellation, this ends the thread's iteration and waits for it.
    """
    reader = BlockReader(chunks, rate)
    work = threads.submit(consume, iter(reader))
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        reader.cancel()
        if not work.cancel():
            await asyncio.gather(ended, return_exceptions=True)
        raise
