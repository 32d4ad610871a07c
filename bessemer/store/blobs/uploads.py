"""Uploads from an event loop into a thread.

obstore's asynchronous calls are not used: when their Rust runtime calls back into a closed loop, or into an
interpreter that is exiting, it aborts the process.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

from bessemer.store.blobs.hashing import CHUNK_BYTES
from bessemer.store.errors import TooManyUploadsError, UploadStalledError

Result = TypeVar("Result")

UPLOADS_AT_ONCE = 32


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


class UploadSlots:
    """Counts the large uploads of each tenant, so that one tenant cannot occupy all threads.

    Runs on one event loop.
    """

    def __init__(self) -> None:
        self._in_progress: Counter[str] = Counter()

    def count(self, tenant: str) -> int:
        """How many slots a tenant has."""
        return self._in_progress[tenant]

    @contextmanager
    def taken(self, tenant: str, most: int | None) -> Iterator[None]:
        """Take a slot while the context lasts.

        Raises:
            TooManyUploadsError: the tenant has ``most`` slots already.
        """
        if most is not None and self._in_progress[tenant] >= most:
            raise TooManyUploadsError(most)
        self._in_progress[tenant] += 1
        try:
            yield
        finally:
            self._in_progress[tenant] -= 1
            if not self._in_progress[tenant]:
                del self._in_progress[tenant]


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
        while block := asyncio.run_coroutine_threadsafe(self.block(), self._loop).result():
            yield block

    def cancel(self) -> None:
        """End the iteration with ``concurrent.futures.CancelledError``; called on the loop."""
        self._cancelled = True
        if self._reading is not None:
            self._reading.cancel()

    async def block(self) -> bytes:
        """The next block; empty at the end of the upload."""
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
    slot: AbstractContextManager[None],
) -> Result:
    """Run ``consume`` in a thread on the chunks of this loop.

    The first block is awaited before a thread is taken, so that slow senders of small uploads do not occupy
    the threads; ``slot`` is taken only for uploads of several blocks.
    """
    reader = BlockReader(chunks, rate)
    first = await reader.block()
    with slot if len(first) >= CHUNK_BYTES else nullcontext():
        return await _run(threads, reader, partial(consume, chain((first,) if first else (), reader)))


async def _run(threads: ThreadPoolExecutor, reader: BlockReader, work_on: Callable[[], Result]) -> Result:
    """Work in a thread. On cancellation, end the thread's iteration and wait for it."""
    work = threads.submit(work_on)
    ended = asyncio.wrap_future(work)
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        reader.cancel()
        if not work.cancel():
            await asyncio.gather(ended, return_exceptions=True)
        raise
