"""The worker's side of the queue on DBOS.

DBOS runs workflows on its own event loop in its own thread. Each workflow passes its task to the loop of
``run``, where all of the worker's code runs. A process can have one consumer: DBOS is a singleton.
"""

import asyncio
import logging

from dbos import DBOS
from sqlalchemy.engine import URL

from bessemer.contract.access import Tenant
from bessemer.store.database import mapped_errors
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_engine import consumer_config, prepare_engine
from bessemer.store.queue.dbos_private import QueueWatch, claiming_in_turn
from bessemer.store.queue.dbos_queue import DbosQueue
from bessemer.store.queue_port import (
    CanTake,
    Consumer,
    Handle,
    MostRunning,
    PostponedError,
    QueueName,
    Task,
    TaskKind,
)
from bessemer.store.quotas import read_quotas
from bessemer.store.settings import StoreSettings

log = logging.getLogger(__name__)

HANDLE_ATTEMPTS = 7
"""How often a task is tried. A postponed one is retried after 1, 2, 4 … 32 seconds.

Then the engine gives up, and ``Queue.requeue`` queues the task again.
"""


class DbosConsumer:
    """Handles tasks under a worker's id. Implements ``Consumer``.

    A killed worker's tasks stay in flight until a consumer with the same id runs, or until
    ``Queue.hand_back`` is called for it.
    """

    def __init__(self, url: URL, worker_id: str, can_take: CanTake, most_running: MostRunning) -> None:
        self._url = url
        self._worker_id = worker_id
        self._can_take = can_take
        self._most_running = most_running

    async def run(self, handle: Handle) -> None:
        """Handle tasks until cancelled; then cancel the tasks in flight, wait for them, and hand them back.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached at the start.
        """
        bridge = _Bridge(handle)
        with claiming_in_turn(self._can_take, self._most_running) as watch:
            try:
                await asyncio.to_thread(self._launch, bridge)
                await asyncio.Event().wait()
            finally:
                await asyncio.shield(self._stop(bridge, watch))

    def _launch(self, bridge: "_Bridge") -> None:
        prepare_engine(self._url)
        DBOS(config=consumer_config(self._url, self._worker_id))
        for kind in TaskKind:
            _register(kind, bridge)
        with mapped_errors():
            DBOS.launch()

    async def _stop(self, bridge: "_Bridge", watch: QueueWatch) -> None:
        logging.getLogger("dbos").setLevel(logging.ERROR)  # it warns of every cancelled task
        try:
            await asyncio.gather(bridge.stop(), asyncio.to_thread(watch.stop))
            await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
            await asyncio.to_thread(self._hand_back)
        finally:
            logging.getLogger("dbos").setLevel(logging.WARNING)

    def _hand_back(self) -> None:
        try:
            queue = DbosQueue(self._url)
        except StoreUnavailableError as error:
            log.warning("the tasks of this worker wait until it returns or its lease ends: %s", error)
            return
        try:
            for task in queue.hand_back(self._worker_id):
                log.info(
                    "%s goes to another worker: this worker stops",
                    task.key,
                    extra={"fields": task.log_fields},
                )
        except StoreUnavailableError as error:
            log.warning("the tasks of this worker wait until it returns or its lease ends: %s", error)
        finally:
            queue.close()


class _Bridge:
    """Passes tasks from DBOS's loop to the loop that made it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def handle(self, task: Task) -> None:
        """Handle a task; called on DBOS's loop. Cancelling this cancels the handling."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(task), self._loop))

    async def stop(self) -> None:
        """Cancel the tasks in flight, refuse others, and wait until all have ended."""
        self._stopping = True
        in_flight = tuple(self._in_flight)
        for task in in_flight:
            task.cancel()
        await asyncio.gather(*in_flight, return_exceptions=True)

    async def _run(self, task: Task) -> None:
        if self._stopping:
            raise asyncio.CancelledError
        current = asyncio.current_task()
        assert current is not None
        self._in_flight.add(current)
        try:
            await self._handle(task)
        except (StoreUnavailableError, PostponedError) as error:
            why = str(error).splitlines()[0]
            log.warning("%s is retried later: %s", task.key, why, extra={"fields": task.log_fields})
            raise
        finally:
            self._in_flight.discard(current)


def _register(kind: TaskKind, bridge: _Bridge) -> None:
    async def handle(task_id: str) -> None:
        await bridge.handle(Task(kind, task_id))

    step = DBOS.step(
        name=f"handle-{kind.value}",
        preemptible=True,
        retries_allowed=True,
        max_attempts=HANDLE_ATTEMPTS,
        should_retry=lambda error: isinstance(error, StoreUnavailableError | PostponedError),
    )(handle)

    async def workflow(task_id: str) -> None:
        await step(task_id)

    DBOS.workflow(name=kind.value)(workflow)


def _takes_all(_queue: QueueName, _tenant: Tenant, _needs: str) -> bool:
    return True


def open_consumer(settings: StoreSettings, worker_id: str, can_take: CanTake = _takes_all) -> Consumer:
    """A consumer of a store's queue, which keeps each tenant within its quota of running jobs.

    Args:
        settings: the location of the engine's database, and the quotas.
        worker_id: unique among all workers, and the same when this worker restarts.
        can_take: whether this worker meets a task's needs; tasks without needs are always taken.

    Raises:
        QuotaFileError: the file of quotas cannot be used.
    """
    quotas = read_quotas(settings)
    return DbosConsumer(settings.engine, worker_id, can_take, lambda tenant: quotas.of(tenant).running_jobs)
