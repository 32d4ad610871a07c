"""The parts of a tenant's unfinished uploads, by digest.

A client that lost its connection sends the parts that are missing. A part of an upload that was given up is
deleted with other remains of uploads.
"""

from collections.abc import Collection, Iterator

from bessemer.contract.base import Digest
from bessemer.store.blobs.object_stores import INCOMING, delete_key, listed
from bessemer.store.blobs.tenant_artifacts import TenantArtifacts


class UploadParts(TenantArtifacts):
    """The parts of one tenant. They are no artifacts: nothing but the upload refers to them."""

    def missing(self, digests: Collection[Digest]) -> tuple[Digest, ...]:
        """Those of the parts that are not stored, each once. Blocks."""
        stored = {key for key, _ in self._stored()}
        return tuple(digest for digest in dict.fromkeys(digests) if self._key(digest) not in stored)

    def stored_bytes(self) -> int:
        """The size of all parts. Blocks."""
        return sum(size for _, size in self._stored())

    def joined(self, digests: Collection[Digest]) -> Iterator[bytes]:
        """The bytes of several parts, one after another. Blocks. Raises as ``stream`` does."""
        for digest in digests:
            yield from self.stream(digest)

    def delete(self, digests: Collection[Digest]) -> None:
        """Delete parts, if they are stored. Blocks."""
        for digest in set(digests):
            delete_key(self._store, self._key(digest))

    def _stored(self) -> Iterator[tuple[str, int]]:
        prefix = self._key("")
        for entries in listed(self._store, INCOMING):
            yield from ((each["path"], each["size"]) for each in entries if each["path"].startswith(prefix))

    def _key(self, digest: Digest) -> str:
        return f"{INCOMING}/part.{self._tenant}.{digest}"  # no tenant has a dot
