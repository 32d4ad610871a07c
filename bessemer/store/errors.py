"""The store's errors.

```
StoreError
├─ FencedError               the row moved on: another attempt, or a final state
├─ IdempotencyConflictError  the id was used for another request
├─ JobNotFinalError          the job has not ended
├─ ModelInUseError           jobs that have not ended need the model
│  └─ ExtensionInUseError    jobs that have not ended need the extension
├─ DeviceUnknownError        the device is not registered
├─ TooManyDevicesError       the tenant has as many devices as it may have
├─ CursorInvalidError        the cursor is not from a page
├─ TooLargeError             the upload exceeds the limit
├─ EmptyUploadError          the upload is empty
├─ UploadStalledError        the upload is too slow
├─ TooManyUploadsError       the tenant has as many large uploads in progress as it may have
├─ DigestMismatchError       the upload has another digest
├─ BlobMissingError          the blob does not exist
├─ DamagedError              a stored blob no longer matches its digest
└─ StoreUnavailableError     the database, the engine or the artifact store cannot be reached
```
The modules that call SQLAlchemy, DBOS and obstore map their exceptions to these.
"""


class StoreError(Exception):
    """The base class of the store's errors."""


class FencedError(StoreError):
    """The caller no longer owns the job: it has a newer attempt, or it is final."""

    def __init__(self, job_id: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of job {job_id} no longer owns it")
        self.job_id = job_id
        self.attempt = attempt


class IdempotencyConflictError(StoreError):
    """The id belongs to a job with another request."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} exists with another request")
        self.job_id = job_id


class JobNotFinalError(StoreError):
    """A job that has not ended cannot be deleted."""

    def __init__(self, job_id: str, state: str) -> None:
        super().__init__(f"compilation {job_id} is {state}: cancel it, then delete it")
        self.job_id = job_id
        self.state = state


class ModelInUseError(StoreError):
    """Jobs that have not ended need the model; ``jobs`` has the first few."""

    noun = "model"

    def __init__(self, digest: str, jobs: tuple[str, ...]) -> None:
        super().__init__(f"compilations that have not ended need {self.noun} {digest}: {', '.join(jobs)}")
        self.digest = digest
        self.jobs = jobs


class ExtensionInUseError(ModelInUseError):
    """Jobs that have not ended need the extension."""

    noun = "extension"


class DeviceUnknownError(StoreError):
    """The tenant has no such device: it never registered, or another registered under its name."""

    def __init__(self, device_id: str) -> None:
        super().__init__(f"Device {device_id} is not registered: register it again.")


class TooManyDevicesError(StoreError):
    """The tenant has as many devices as it may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The tenant has {most} devices, the most that it may have. Stop one of them.")


class CursorInvalidError(StoreError):
    """The cursor is not from this store."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"'{cursor[:80]}' is not a cursor")
        self.cursor = cursor


class TooLargeError(StoreError):
    """An upload exceeds ``max_bytes``; nothing is stored."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the upload exceeds {max_bytes} bytes")
        self.max_bytes = max_bytes


class EmptyUploadError(StoreError):
    """An upload is empty."""

    def __init__(self) -> None:
        super().__init__("The file, or the body of the request, has 0 bytes.")


class UploadStalledError(StoreError):
    """An upload is too slow; nothing is stored."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the upload stalled: {how}")


class TooManyUploadsError(StoreError):
    """A tenant has as many large uploads in progress as it may have; nothing is stored."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"The tenant's quota `uploads` is {most}: it has as many uploads of more than 1 MiB in progress. "
            "Wait until one of them has ended."
        )


class DigestMismatchError(StoreError):
    """An upload's digest is not the expected one; nothing is stored."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f"expected SHA-256 {expected}, received {actual}")
        self.expected = expected
        self.actual = actual


class BlobMissingError(StoreError):
    """No blob with this digest is stored."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"blob {digest} not found")
        self.digest = digest


class DamagedError(StoreError):
    """A stored blob no longer hashes to its digest, or was cut."""

    def __init__(self, digest: str, found: str) -> None:
        super().__init__(f"blob {digest} is damaged: {found}")
        self.digest = digest


_DISK_FULL = ("disk is full", "disk full", "no space left on device")
"""Parts of the messages of SQLite, PostgreSQL and operating systems."""


def is_disk_full(error: BaseException) -> bool:
    """Whether a store is unavailable because its disk is full."""
    said = str(error).lower()
    return any(text in said for text in _DISK_FULL)


class StoreUnavailableError(StoreError):
    """The database, the job engine or the artifact store cannot be reached; a retry can help."""
