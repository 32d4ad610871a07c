"""Threads that watch and kill jobs. Calls of a database that hangs occupy others, so limits stay enforced."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = ThreadPoolExecutor(8, thread_name_prefix="watch")


async def run_apart(call: Callable[..., T], *arguments: object) -> T:
    """Run a call that uses no store."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call, *arguments)
