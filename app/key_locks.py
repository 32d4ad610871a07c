"""Locks by key among the requests of one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class KeyLocks:
    """A lock for each key, kept while a request holds it or waits for it. Runs on one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of ``key`` while the context lasts."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            yield
