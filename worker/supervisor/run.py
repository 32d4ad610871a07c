"""A worker's life: what it opens, that it is alive, and how it leaves."""

import asyncio
import logging
from contextlib import closing
from functools import partial
from pathlib import Path

from bessemer.contract.capability import Capability, Needs, lacks
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_consumer import open_consumer
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue.reaper import CHECKS_PER_LEASE, Leases, Reaper
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from bessemer.telemetry.traces import open_tracer
from worker.errors import SandboxIncompleteError
from worker.settings import WorkerSettings
from worker.supervisor.health_server import served
from worker.supervisor.heartbeat import Heartbeat
from worker.supervisor.lease import LeaseHealth
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.supervisor import Supervisor
from worker.supervisor.work_dir import claim_workplace, share_turns, sweep_abandoned
from worker.supervisor.zygote_handle import ZygoteHandle

SWEEP_SECONDS = 60.0

log = logging.getLogger(__name__)


async def run_supervisor(settings: WorkerSettings, store_settings: StoreSettings) -> None:
    """Work until cancelled; then end what runs, hand over its tasks and leave.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
        ZygoteLostError: the zygote could not be started.
        WorkplaceError: the work folder, or the file for measuring in turns, cannot be used.
        SandboxIncompleteError: a required layer of the confinement does not hold.
    """
    opened = await asyncio.to_thread(open_store, store_settings)
    with closing(opened) as store, claim_workplace(settings.work_dir) as place:
        share_turns(settings.measuring_lock)
        metrics, tracer = WorkerMetrics(), open_tracer("worker")
        pulse = LeaseHealth(store_settings.worker_lost_seconds)
        zygote = ZygoteHandle(place.groups, metrics.zygote_restarts.inc)
        supervisor = Supervisor(settings, store, place, zygote, metrics, tracer)
        try:
            with served(metrics.registry, pulse, settings.metrics_host, settings.metrics_port):
                presence = await _prepare(supervisor, zygote, settings, pulse)
                await _work(supervisor, presence, store, store_settings, settings.work_dir, metrics)
        finally:
            await asyncio.shield(zygote.stop())
            await asyncio.shield(asyncio.to_thread(tracer.close))


async def _prepare(
    supervisor: Supervisor, zygote: ZygoteHandle, settings: WorkerSettings, pulse: LeaseHealth
) -> Heartbeat:
    ready = await zygote.ensure_running()
    sandbox = await supervisor.probe()
    _announce(sandbox)
    if sandbox.mode is SandboxMode.REQUIRED and not sandbox.complete:
        raise SandboxIncompleteError(f"required layers do not hold: {', '.join(sandbox.lost)}")
    return Heartbeat(
        id=supervisor.worker_id,
        ready=ready,
        sandbox=sandbox,
        cores=settings.cores,
        limit_seconds=settings.limit_wall_seconds,
        hands=supervisor.hands,
        pulse=pulse,
    )


async def _work(
    supervisor: Supervisor,
    presence: Heartbeat,
    store: Store,
    store_settings: StoreSettings,
    work_dir: Path,
    metrics: WorkerMetrics,
) -> None:
    lease_seconds = store_settings.worker_lost_seconds
    with closing(await asyncio.to_thread(open_queue, store_settings)) as queue:
        reaper = Reaper(store.workers, queue, Leases(lease_seconds), metrics.losses.worker)
        can_take = partial(_can_take, presence.ready.capability)
        consumer = open_consumer(store_settings, supervisor.worker_id, can_take)
        # nothing is taken in hand before the lease on it is written down
        await asyncio.to_thread(presence.beat, store.workers)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(presence.keep(store.workers, lease_seconds))
                group.create_task(_reap(reaper, lease_seconds / CHECKS_PER_LEASE))
                group.create_task(_sweep(work_dir))
                group.create_task(consumer.run(supervisor.handle))
        finally:
            await asyncio.shield(asyncio.to_thread(_leave, reaper, supervisor.worker_id))


async def _sweep(work_dir: Path) -> None:
    """Remove what others on this host left, again and again: they may never come back to it."""
    while True:
        try:
            if count := await asyncio.to_thread(sweep_abandoned, work_dir):
                log.warning("removed what %d supervisors had left in %s", count, work_dir)
        except Exception:
            log.exception("what supervisors left in %s cannot be looked for; it is tried again", work_dir)
        await asyncio.sleep(SWEEP_SECONDS)


async def _reap(reaper: Reaper, interval_seconds: float) -> None:
    while True:
        try:
            await asyncio.to_thread(reaper.reap)
        except StoreUnavailableError as error:
            log.warning("lost workers cannot be looked for just now: %s", error)
        except Exception:
            log.exception("the look for lost workers failed; it is tried again")
        await asyncio.sleep(interval_seconds)


def _can_take(capability: Capability, needs: str) -> bool:
    return not lacks(capability, Needs.parse(needs))


def _leave(reaper: Reaper, worker_id: str) -> None:
    try:
        reaper.retire(worker_id)
    except StoreUnavailableError as error:
        log.warning("worker %s will be missed only after a while: %s", worker_id, error)


def _announce(sandbox: SandboxStatus) -> None:
    holding = ", ".join(status.layer for status in sandbox.layers if status.holds) or "none"
    log.info("confinement (%s): %s", sandbox.mode, holding)
    for status in sandbox.layers:
        if not status.holds:
            log.warning("the layer %s does not hold: %s", status.layer, status.note)
