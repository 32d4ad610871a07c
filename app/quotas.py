"""Refuses requests that exceed a tenant's quota. The queue enforces the limits that only delay tasks."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from starlette.concurrency import run_in_threadpool

from app.http.problems import RefusalError
from app.service import TenantService
from bessemer.contract.base import Digest, now
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.usage import Quota, Usage, Use
from bessemer.store.blobs.hashing import Blob
from bessemer.store.errors import TooLargeError


@dataclass(frozen=True)
class Limited:
    """A part of a quota that refuses requests.

    Attributes:
        name: the field of ``Quota``.
        noun: what the limit counts.
        advice: what the tenant can do.
        retry_seconds: the seconds until a retry may succeed; None for the end of the day.
    """

    name: str
    noun: str
    advice: str
    retry_seconds: int | None


QUEUED = Limited("queued_jobs", "queued jobs", "Wait until workers have taken some, or cancel some.", 10)
STORED = Limited("stored_bytes", "stored bytes", "Delete models and compilations that you do not need.", 60)
RECORDS = Limited("record_bytes", "bytes of tuning records", "Delete records that you do not need.", 60)
WORKER = Limited("worker_seconds", "worker seconds a day", "A new day begins at 00:00 UTC.", None)


def excess(what: Limited, quota: Quota, used: int, more: int = 1) -> str | None:
    """How a request would exceed a quota, and what to do; None if it would not."""
    limit = getattr(quota, what.name)
    if limit is None or used + more <= limit:
        return None
    asked = f", and this request needs at least {more} more" if more > 1 else ""
    return f"The quota `{what.name}` allows {limit} {what.noun}; the tenant has {used}{asked}. {what.advice}"


def retry_seconds(what: Limited, at: datetime) -> int:
    """The seconds until a retry may succeed."""
    if what.retry_seconds is not None:
        return what.retry_seconds
    return int((day_end(at) - at).total_seconds()) + 1


def day_end(at: datetime) -> datetime:
    """The end of the day (UTC) of a time."""
    return at.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def require_room(service: TenantService, *kinds: Limited, more_bytes: int = 1, more_jobs: int = 1) -> None:
    """Check that a request fits some of a tenant's limits. Blocks.

    Concurrent requests may each pass the check, and exceed a limit together.

    Args:
        service: the service as the tenant sees it.
        kinds: the limits that the request counts toward.
        more_bytes: how much it stores, as far as that is known.
        more_jobs: how many jobs it queues.

    Raises:
        RefusalError: 429.
    """
    quota, usage = service.quota, service.data.usage
    more = {STORED: more_bytes, RECORDS: more_bytes, QUEUED: more_jobs}
    for what in kinds:
        if getattr(quota, what.name) is None:
            continue
        found = excess(what, quota, getattr(usage, what.name)(), more.get(what, 1))
        if found is not None:
            retry_after = {"Retry-After": str(retry_seconds(what, now()))}
            raise RefusalError(make_problem(ErrorCode.QUOTA_EXCEEDED, found), retry_after)


async def put_within_quota(
    service: TenantService,
    chunks: AsyncIterator[bytes],
    expected: Digest | None,
    max_bytes: int,
    is_new: bool = True,
) -> Blob:
    """Store an upload unless it exceeds what is left of the tenant's quota.

    Args:
        service: the service as the tenant sees it.
        chunks: the upload.
        expected: the digest that the client named, if any.
        max_bytes: the largest upload that is accepted.
        is_new: False if the tenant is known to have stored the file already.

    Raises:
        RefusalError: 429; nothing is stored.
        StoreError: as ``TenantArtifacts.put_stream``.
    """
    left = await run_in_threadpool(_bytes_left, service) if is_new else None
    most = max_bytes if left is None else min(max_bytes, left)
    rate, at_once = service.settings.upload_rate, service.quota.uploads
    try:
        return await service.data.artifacts.put_stream(chunks, expected, most, rate, at_once)
    except TooLargeError:
        if most < max_bytes:
            await run_in_threadpool(partial(require_room, service, STORED, more_bytes=most + 1))
        raise


def _bytes_left(service: TenantService) -> int | None:
    limit = service.quota.stored_bytes
    return None if limit is None else max(0, limit - service.data.usage.stored_bytes())


def usage_of(service: TenantService) -> Usage:
    """What a tenant uses, and its limits. Blocks."""
    quota, data = service.quota, service.data
    return Usage(
        tenant=data.tenant,
        running_jobs=Use(used=data.usage.running_jobs(), limit=quota.running_jobs),
        queued_jobs=Use(used=data.usage.queued_jobs(), limit=quota.queued_jobs),
        uploads=Use(used=data.artifacts.uploads, limit=quota.uploads),
        stored_bytes=Use(used=data.usage.stored_bytes(), limit=quota.stored_bytes),
        record_bytes=Use(used=data.usage.record_bytes(), limit=quota.record_bytes),
        worker_seconds=Use(used=data.usage.worker_seconds(), limit=quota.worker_seconds),
        highest_priority=quota.highest_priority,
        day_ends_at=day_end(now()),
    )
