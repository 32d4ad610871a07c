"""Prints by how many bytes an upload of 128 MiB into a folder raises this process's peak memory."""

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.store.blobs.artifacts import open_artifacts

CHUNK = os.urandom(1 << 16)


async def chunks(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield number.to_bytes(8) + CHUNK[8:]


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


artifacts = open_artifacts(f"file://{sys.argv[1]}")
asyncio.run(artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks(1), None, 1 << 30))
before = peak_bytes()
blob = asyncio.run(artifacts.for_tenant(DEFAULT_TENANT).put_stream(chunks(2048), None, 1 << 30))
assert blob.size_bytes == 128 << 20
print(peak_bytes() - before)
