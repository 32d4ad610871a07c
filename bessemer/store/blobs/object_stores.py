"""Object stores: opening one by its URL, moving, listing and deleting keys, mapping errors."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, S3Store, from_url

from bessemer.store.blobs.hashing import Meter
from bessemer.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

INCOMING = ".incoming"
"""The folder of uploads in progress."""

LISTED_AT_ONCE = 200
PART_BYTES = 5 << 20  # the smallest part that S3 takes
PARTS_IN_FLIGHT = 2
S3_COPY_BYTES = 5 << 30
"""The largest object that S3 copies in one request."""
_RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}


def open_object_store(url: str) -> ObjectStore:
    """Open a folder, created if missing, or a bucket.

    Raises:
        StoreUnavailableError: the store does not exist, or the folder cannot be created.
    """
    with mapped_errors():
        if url.startswith("file://"):
            return LocalStore.from_url(url, mkdir=True)
        return from_url(url, client_options=_client_options(), retry_config=_RETRIES)


def move(store: ObjectStore, source: str, target: str, copy_bytes: int = S3_COPY_BYTES) -> None:
    """Move a blob; ``target`` holds a whole blob at all times.

    A folder renames. A bucket copies, then deletes: in between, both keys exist. An object that is too large
    for S3 to copy passes through this process in parts.

    Args:
        store: the store of both keys.
        source: the blob's key.
        target: its new key.
        copy_bytes: the largest blob that S3 copies in one request.

    Raises:
        FileNotFoundError: ``source`` does not exist.
    """
    if not isinstance(store, S3Store) or obstore.head(store, source)["size"] <= copy_bytes:
        obstore.rename(store, source, target)
        return
    writer = obstore.open_writer(store, target, buffer_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT)
    for part in obstore.get(store, source).stream(min_chunk_size=PART_BYTES):
        writer.write(part)
    writer.close()  # not after an error: that would store half of it
    obstore.delete(store, source)


@contextmanager
def mapped_errors(meter: Meter | None = None) -> Iterator[None]:
    """Turn obstore's exceptions into the store's; exceptions of the metered source pass unchanged."""
    try:
        yield
    except (BaseError, OSError) as error:
        if meter is not None and meter.source_error is error:
            raise
        said, _, _ = str(error).partition("\n\nDebug source:")
        raise StoreUnavailableError(f"the artifact store cannot be used: {said}") from error


def listed(store: ObjectStore, prefix: str | None) -> Iterator[Sequence["ObjectMeta"]]:
    """The entries below a prefix, in batches."""
    with mapped_errors():
        yield from obstore.list(store, prefix=prefix, chunk_size=LISTED_AT_ONCE)


def incoming_key() -> str:
    """A new key for an upload in progress."""
    return f"{INCOMING}/{uuid.uuid4().hex}"


def delete_key(store: ObjectStore, key: str) -> None:
    """Delete a key if it exists and the store can be reached."""
    with suppress(FileNotFoundError, BaseError):
        obstore.delete(store, key)


def _client_options() -> "ClientConfig":
    """Timeouts for responses as large as a model and as slow as the client that reads them.

    obstore ignores the environment if any option is given, so ``AWS_ALLOW_HTTP`` is read here.
    """
    return {
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(minutes=1),
        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "on", "true", "y", "yes"),
    }
