"""The object store that a URL names, and its errors as ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, from_url

from bessemer.store.blobs.hashing import Meter
from bessemer.store.errors import StoreUnavailableError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}


def open_object_store(url: str) -> ObjectStore:
    """A folder, made where missing, or a bucket.

    Raises:
        StoreUnavailableError: there is no such store, or the folder cannot be made.
    """
    with mapped_errors():
        if url.startswith("file://"):
            return LocalStore.from_url(url, mkdir=True)
        return from_url(url, client_options=_client_options(), retry_config=_RETRIES)


@contextmanager
def mapped_errors(meter: Meter | None = None) -> Iterator[None]:
    """Turn obstore's exceptions into the store's, but let pass what the metered source raised."""
    try:
        yield
    except (BaseError, OSError) as error:
        if meter is not None and meter.source_error is error:
            raise
        said, _, _ = str(error).partition("\n\nDebug source:")
        raise StoreUnavailableError(f"the artifact store cannot be used: {said}") from error


def _client_options() -> "ClientConfig":
    """A bucket's answer may be as large as a model, and as slow as the client it is for, but not stand still.

    Options that are given replace all that the environment has.
    """
    return {
        "timeout": timedelta(days=1),
        "read_timeout": timedelta(minutes=1),
        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "on", "true", "y", "yes"),
    }
