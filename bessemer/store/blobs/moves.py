"""Moving a blob from one key to another, as each kind of store does it."""

import obstore
from obstore.store import ObjectStore, S3Store

PART_BYTES = 5 << 20  # the smallest part that S3 takes
PARTS_IN_FLIGHT = 2
S3_COPY_BYTES = 5 << 30
"""What S3 copies at most at once."""


def move(store: ObjectStore, source: str, target: str, copy_bytes: int = S3_COPY_BYTES) -> None:
    """Move a blob; what was at the target is replaced by the whole of it, or by nothing.

    A folder renames. A bucket copies, then deletes: between the two there are both. What is too large for S3
    to copy passes through this process, a part at a time.

    Args:
        store: where both keys are.
        source: the blob's key.
        target: its new key.
        copy_bytes: the largest blob that S3 copies.

    Raises:
        FileNotFoundError: nothing is at ``source``.
    """
    if not isinstance(store, S3Store) or obstore.head(store, source)["size"] <= copy_bytes:
        obstore.rename(store, source, target)
        return
    writer = obstore.open_writer(store, target, buffer_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT)
    for part in obstore.get(store, source).stream(min_chunk_size=PART_BYTES):
        writer.write(part)
    writer.close()  # not after an error: that would store the half of it
    obstore.delete(store, source)
