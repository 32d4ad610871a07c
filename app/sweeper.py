"""Periodic recovery and cleanup: missing tasks, lost workers, abandoned uploads, expired rows and blobs.

The rows say which tasks remain. Requeueing a task that a worker still runs is safe: the new attempt fences
out the old one.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from starlette.concurrency import run_in_threadpool

from app.service import Service
from bessemer.store.blobs.sweep import sweep_blobs
from bessemer.store.queue.reaper import CHECKS_PER_LEASE, Leases, Reaper
from bessemer.telemetry.logs import log_fields

LONGEST_UPLOADS_SWEEP_SECONDS = 3600.0
CLEANUP_SECONDS = 3600.0
DAY_SECONDS = 86_400.0
ENDED_TASKS_DAYS = 1.0

log = logging.getLogger(__name__)


def sweep(service: Service) -> int:
    """Enqueue every task that has been missing from the queue for ``sweep_age_seconds``. Blocks.

    Returns:
        The number of enqueued tasks.

    Raises:
        StoreError: the database or the queue cannot be reached.
    """
    return enqueue_missing(service) + requeue_given_up(service)


def enqueue_missing(service: Service) -> int:
    """Enqueue the tasks of rows whose app stopped before it enqueued them.

    The failure of one does not stop the others.
    """
    age_seconds = service.settings.sweep_age_seconds
    tasks = [task for rows in service.store.task_rows for task in rows.unenqueued(age_seconds)]
    count = 0
    for task in tasks:
        with log_fields(**task.log_fields):
            try:
                service.enqueue(task)
            except Exception:
                log.exception("%s is missing from the queue and cannot be enqueued; will retry", task.id)
            else:
                count += 1
                log.warning("enqueued %s, which was missing from the queue", task.id)
    return count


def requeue_given_up(service: Service) -> int:
    """Requeue tasks that the queue has given up on although their rows are not final."""
    age_seconds = service.settings.sweep_age_seconds
    in_progress = service.queue.in_progress()
    tasks = [task for rows in service.store.task_rows for task in rows.enqueued(age_seconds, in_progress)]
    requeued = service.queue.requeue(tasks)
    for task in requeued:
        service.store.rows(task.kind).mark_enqueued(task.id)
        log.warning("requeued %s after the queue gave up on it", task.key, extra={"fields": task.log_fields})
    return len(requeued)


def sweep_uploads(service: Service) -> int:
    """Delete the remains of uploads that have not grown for ``upload_abandoned_seconds``. Blocks.

    Returns:
        The number of deleted uploads.

    Raises:
        StoreError: the artifact store cannot be reached.
    """
    count = service.store.artifacts.sweep_incoming(service.settings.upload_abandoned_seconds)
    if count:
        log.warning("deleted %d abandoned uploads", count)
    return count


async def run_sweeps(service: Service) -> None:
    """Sweep until cancelled: workers several times per lease, tasks often, the rest every hour."""
    settings = service.settings
    leases = Leases(settings.worker_lost_seconds)
    reaper = Reaper(service.store.workers, service.queue, leases, service.metrics.losses.worker)
    uploads_seconds = min(LONGEST_UPLOADS_SWEEP_SECONDS, settings.upload_abandoned_seconds)
    async with asyncio.TaskGroup() as group:
        group.create_task(_repeat(reaper.reap, settings.worker_lost_seconds / CHECKS_PER_LEASE))
        group.create_task(_repeat(partial(sweep, service), settings.sweep_seconds))
        group.create_task(_repeat(partial(sweep_uploads, service), uploads_seconds))
        group.create_task(_repeat(partial(delete_expired, service), CLEANUP_SECONDS))


async def _repeat(sweeping: Callable[[], int], seconds: float) -> None:
    """Sweep at intervals until cancelled; log errors and continue."""
    while True:
        try:
            await run_in_threadpool(sweeping)
        except Exception:
            log.exception("a sweep failed; will retry")
        await asyncio.sleep(seconds)


def delete_expired(service: Service) -> int:
    """Delete expired rows and tasks, then sweep unreferenced blobs. Blocks.

    Returns:
        The number of deleted rows and tasks, and of moved, restored and deleted blobs.

    Raises:
        StoreError: the database, the queue or the artifact store cannot be reached.
    """
    settings, removal = service.settings, service.store.removal
    jobs = _expire(removal.expire_jobs, settings.retention_days)
    uploads = _expire(removal.expire_uploads, settings.model_retention_days)
    tasks = _expire(service.queue.delete_ended, ENDED_TASKS_DAYS)
    service.store.device_tasks.delete_obsolete()
    service.store.records.forget_ended()
    _expire(service.store.records.expire, settings.record_retention_days)
    while service.store.records.trim():
        pass
    service.store.records.delete_unused()
    service.store.cost_models.delete_unused()
    _expire(service.store.audit.expire, settings.audit_retention_days)
    grace_seconds = settings.blob_grace_seconds
    swept = sweep_blobs(service.store.database, service.store.artifacts, grace_seconds, grace_seconds)
    count = jobs + uploads + tasks + swept.trashed + swept.restored + swept.deleted
    if count:
        said = "deleted %d compilations and invocations, %d models and extensions, and %d ended tasks; %s"
        log.info(said, jobs, uploads, tasks, swept)
    return count


def _expire(expire: Callable[[float], int], days: float | None) -> int:
    if days is None:
        return 0
    count = 0
    while deleted := expire(days * DAY_SECONDS):
        count += deleted
    return count
