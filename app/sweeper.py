"""Enqueues again what was kept but never reached the queue: an app that died between the two."""

import asyncio
import logging

from starlette.concurrency import run_in_threadpool

from app.service import Service

log = logging.getLogger(__name__)


def sweep(service: Service) -> int:
    """Enqueue every row that is older than ``sweep_age_seconds`` and was never enqueued. Blocks.

    Returns:
        How many tasks were enqueued.

    Raises:
        StoreError: the database or the queue cannot be reached.
    """
    age_seconds = service.settings.sweep_age_seconds
    jobs = service.store.jobs.unenqueued(age_seconds)
    models = service.store.models.unenqueued(age_seconds)
    for job_id in jobs:
        service.enqueue_compilation(job_id)
    for digest in models:
        service.enqueue_inspection(digest)
    return len(jobs) + len(models)


async def sweep_forever(service: Service) -> None:
    """Sweep until cancelled. An error is logged and does not end it."""
    while True:
        try:
            count = await run_in_threadpool(sweep, service)
        except Exception:
            log.exception("the sweep failed; it is tried again")
        else:
            if count:
                log.warning("enqueued %d tasks that had never reached the queue", count)
        await asyncio.sleep(service.settings.sweep_seconds)
