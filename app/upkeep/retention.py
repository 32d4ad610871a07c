"""What the settings say may go, goes: old compilations, unused models, blobs that nothing refers to.

So does what the queue still knows of tasks that ended a day ago, whatever the settings: rows tell the truth.
"""

import logging
from collections.abc import Callable

from app.service import Service
from bessemer.store.blobs.sweep import sweep_blobs

DAY_SECONDS = 86_400.0
ENDED_TASKS_DAYS = 1.0

log = logging.getLogger(__name__)


def keep_house(service: Service) -> int:
    """Delete rows that are past their time, then blobs that no row refers to. Blocks.

    Returns:
        How many rows were deleted, tasks forgotten, and blobs moved to the trash, put back or deleted.

    Raises:
        StoreError: the database, the queue or the artifact store cannot be reached.
    """
    settings, removal = service.settings, service.store.removal
    jobs = _expire(removal.expire_jobs, settings.retention_days)
    models = _expire(removal.expire_models, settings.model_retention_days)
    tasks = _expire(service.queue.forget_ended, ENDED_TASKS_DAYS)
    grace_seconds = settings.blob_grace_seconds
    swept = sweep_blobs(service.store.database, service.store.artifacts, grace_seconds, grace_seconds)
    count = jobs + models + tasks + swept.discarded + swept.restored + swept.deleted
    if count:
        said = "deleted %d compilations and invocations and %d models, forgot %d ended tasks; %s"
        log.info(said, jobs, models, tasks, swept)
    return count


def _expire(expire: Callable[[float], int], days: float | None) -> int:
    if days is None:
        return 0
    count = 0
    while deleted := expire(days * DAY_SECONDS):
        count += deleted
    return count
