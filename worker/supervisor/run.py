"""Runs a worker: opens its resources, keeps its lease, takes tasks, and shuts down."""

import asyncio
import logging
from contextlib import closing
from functools import partial
from pathlib import Path

from bessemer.contract.access import Tenant
from bessemer.contract.capability import Capability, Needs, lacks
from bessemer.contract.queue import QueueName
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.service import usable_platforms
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_consumer import open_consumer
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue.reaper import CHECKS_PER_LEASE, Leases, Reaper
from bessemer.store.quotas import read_quotas
from bessemer.store.rows.device_tasks import DeviceTasks, LivePlatforms
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from bessemer.telemetry.traces import open_tracer
from worker.errors import SandboxIncompleteError
from worker.settings import WorkerSettings
from worker.supervisor.cost_model_training import CostModelTrainer
from worker.supervisor.health_server import serve_health
from worker.supervisor.heartbeat import Heartbeat, LeaseHealth
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.supervisor import Supervisor
from worker.supervisor.turns import make_lock_files
from worker.supervisor.work_dir import claim_work_dir, sweep_abandoned
from worker.supervisor.zygote_handle import ZygoteHandle

SWEEP_SECONDS = 60.0
DEVICES_SECONDS = 2.0

log = logging.getLogger(__name__)


async def run_supervisor(settings: WorkerSettings, store_settings: StoreSettings) -> None:
    """Work until cancelled; then kill what runs, hand its tasks back and leave.

    Raises:
        StoreUnavailableError: the database or the artifact store cannot be used.
        ZygoteLostError: the zygote could not be started.
        WorkDirError: the work folder, or the file for measuring in turns, cannot be used.
        SigningKeyError: the signing key cannot be used.
        SandboxIncompleteError: a required layer of the confinement does not hold.
        QuotaFileError: the file of quotas cannot be used.
    """
    quotas = read_quotas(store_settings)  # before the zygote starts, which takes seconds
    opened = await asyncio.to_thread(open_store, store_settings)
    with closing(opened) as store, claim_work_dir(settings.work_dir) as work_dir:
        make_lock_files(settings.measuring_lock)
        metrics, tracer = WorkerMetrics(), open_tracer("worker")
        lease = LeaseHealth(store_settings.worker_lost_seconds)
        zygote = ZygoteHandle(work_dir.groups, metrics.zygote_restarts.inc)
        supervisor = Supervisor(settings, store, work_dir, zygote, metrics, tracer, quotas)
        try:
            with serve_health(metrics.registry, lease, settings.metrics_host, settings.metrics_port):
                heartbeat = await _prepare(supervisor, zygote, settings, lease)
                await _work(supervisor, heartbeat, store, store_settings, settings, metrics)
        finally:
            await asyncio.shield(zygote.stop())
            await asyncio.shield(asyncio.to_thread(tracer.close))


async def _prepare(
    supervisor: Supervisor, zygote: ZygoteHandle, settings: WorkerSettings, lease: LeaseHealth
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
        in_flight=supervisor.in_flight,
        lease=lease,
    )


async def _work(
    supervisor: Supervisor,
    heartbeat: Heartbeat,
    store: Store,
    store_settings: StoreSettings,
    settings: WorkerSettings,
    metrics: WorkerMetrics,
) -> None:
    lease_seconds = store_settings.worker_lost_seconds
    with closing(await asyncio.to_thread(open_queue, store_settings)) as queue:
        reaper = Reaper(store.workers, queue, Leases(lease_seconds), metrics.losses.worker)
        devices = LiveDevices(store.device_tasks)
        can_take = partial(_can_take, heartbeat.ready.capability, devices)
        consumer = open_consumer(store_settings, supervisor.worker_id, can_take)
        # the worker takes no task before its lease is written
        await asyncio.to_thread(heartbeat.beat, store.workers)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(heartbeat.keep(store.workers, lease_seconds))
                group.create_task(_reap(reaper, lease_seconds / CHECKS_PER_LEASE))
                group.create_task(_sweep(settings.work_dir))
                group.create_task(devices.keep())
                trainer = CostModelTrainer(store.cost_models, settings.turn_limits())
                group.create_task(trainer.run())
                group.create_task(supervisor.fill_cache())
                group.create_task(consumer.run(supervisor.handle))
        finally:
            await asyncio.shield(asyncio.to_thread(_leave, reaper, supervisor.worker_id))


async def _sweep(work_dir: Path) -> None:
    """Remove what other supervisors on this host left: they may never come back."""
    while True:
        try:
            if count := await asyncio.to_thread(sweep_abandoned, work_dir):
                log.warning("removed what %d supervisors left in %s", count, work_dir)
        except Exception:
            log.exception("cannot sweep what supervisors left in %s; retrying", work_dir)
        await asyncio.sleep(SWEEP_SECONDS)


async def _reap(reaper: Reaper, interval_seconds: float) -> None:
    while True:
        try:
            await asyncio.to_thread(reaper.reap)
        except StoreUnavailableError as error:
            log.warning("cannot look for lost workers: %s", error)
        except Exception:
            log.exception("looking for lost workers failed; retrying")
        await asyncio.sleep(interval_seconds)


class LiveDevices:
    """The platforms of the live devices, read often enough to claim what they can verify."""

    def __init__(self, tasks: DeviceTasks) -> None:
        self._tasks = tasks
        self.platforms = LivePlatforms()

    async def keep(self) -> None:
        """Read the rows again and again until cancelled."""
        while True:
            try:
                self.platforms = await asyncio.to_thread(self._tasks.live_platforms)
            except StoreUnavailableError as error:
                log.warning("cannot look for devices: %s", error)
            except Exception:
                log.exception("looking for devices failed; retrying")
            await asyncio.sleep(DEVICES_SECONDS)


def _can_take(
    capability: Capability, devices: LiveDevices, queue: QueueName, tenant: Tenant, needs: str
) -> bool:
    platforms = usable_platforms(queue, devices.platforms.of(tenant))
    return not lacks(capability, Needs.parse(needs), platforms)


def _leave(reaper: Reaper, worker_id: str) -> None:
    try:
        reaper.retire(worker_id)
    except StoreUnavailableError as error:
        log.warning(
            "worker %s cannot unregister; its tasks wait until its lease expires: %s", worker_id, error
        )


def _announce(sandbox: SandboxStatus) -> None:
    holding = ", ".join(status.layer for status in sandbox.layers if status.holds) or "none"
    log.info("confinement (%s): %s", sandbox.mode, holding)
    for status in sandbox.layers:
        if not status.holds:
            log.warning("the layer %s does not hold: %s", status.layer, status.note)
