"""The parts of a tenant's unfinished uploads, by digest.

A client that lost its connection sends the parts that are missing. A part of an upload that was given up is
deleted with other remains of uploads.
"""

from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from obstore.store import ObjectStore

from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from bessemer.store.blobs.object_stores import INCOMING, delete_key, listed
from bessemer.store.blobs.tenant_artifacts import TenantArtifacts
from bessemer.store.blobs.uploads import MinimumRate, UploadSlots


class UploadParts:
    """The parts of one tenant. Nothing but the upload refers to them."""

    def __init__(
        self, store: ObjectStore, threads: ThreadPoolExecutor, slots: UploadSlots, tenant: Tenant
    ) -> None:
        self._store = store
        self._prefix = f"{INCOMING}/part.{tenant}."  # no tenant has a dot
        self._blobs = _Parts(self._prefix, store, threads, slots, tenant)

    async def put_stream(
        self,
        chunks: AsyncIterator[bytes],
        digest: Digest,
        max_bytes: int,
        rate: MinimumRate | None = None,
        most_at_once: int | None = None,
    ) -> None:
        """Store a part. Takes and raises what ``TenantArtifacts.put_stream`` does."""
        await self._blobs.put_stream(chunks, digest, max_bytes, rate, most_at_once)

    def missing(self, digests: Collection[Digest]) -> tuple[Digest, ...]:
        """The parts that are not stored, each once. Blocks."""
        stored = {key for key, _ in self._stored()}
        return tuple(digest for digest in dict.fromkeys(digests) if f"{self._prefix}{digest}" not in stored)

    def stored_bytes(self) -> int:
        """The size of all parts. Blocks."""
        return sum(size for _, size in self._stored())

    def joined(self, digests: Collection[Digest]) -> Iterator[bytes]:
        """The bytes of several parts, in order. Blocks.

        Raises:
            BlobMissingError: a part is not stored, or no longer.
            DamagedError: the content of a part does not match its digest.
        """
        for digest in digests:
            yield from self._blobs.stream(digest)

    def delete(self, digests: Collection[Digest]) -> None:
        """Delete parts, if they are stored. Blocks."""
        wanted = {f"{self._prefix}{digest}" for digest in digests}
        for key in [key for key, _ in self._stored() if key in wanted]:
            delete_key(self._store, key)

    def _stored(self) -> Iterator[tuple[str, int]]:
        for entries in listed(self._store, INCOMING):
            yield from (
                (each["path"], each["size"]) for each in entries if each["path"].startswith(self._prefix)
            )


class _Parts(TenantArtifacts):
    """Parts as blobs with keys of their own."""

    def __init__(
        self,
        prefix: str,
        store: ObjectStore,
        threads: ThreadPoolExecutor,
        slots: UploadSlots,
        tenant: Tenant,
    ) -> None:
        super().__init__(store, threads, slots, tenant)
        self._prefix = prefix

    def _key(self, digest: Digest) -> str:
        return f"{self._prefix}{digest}"
