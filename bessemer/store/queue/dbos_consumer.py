"""The worker's side of the queue on DBOS.

DBOS runs workflows on a loop of its own, in a thread of its own; each hands its task over to the loop of
``run``, where all of the worker's code runs. One consumer per process: DBOS is a singleton.
"""

import asyncio
import logging

from dbos import DBOS
from sqlalchemy.engine import URL

from bessemer.store.database import mapped_errors
from bessemer.store.errors import StoreUnavailableError
from bessemer.store.queue.dbos_engine import consumer_config, prepare_engine
from bessemer.store.queue.dbos_queue import DbosQueue
from bessemer.store.queue.dbos_routing import claiming_only
from bessemer.store.queue_port import CanTake, Consumer, Handle, PostponedError, Task, TaskKind
from bessemer.store.settings import StoreSettings

log = logging.getLogger(__name__)

HANDLE_ATTEMPTS = 7
"""How often a task is begun where it cannot be done just now, with waits of 1, 2, 4 … 32 seconds.

Then the engine is done with it, and ``Queue.revive`` brings it back.
"""


class DbosConsumer:
    """Handles tasks under a worker's id. Implements ``Consumer``.

    A killed worker's tasks stay in its hand until a consumer with the same id runs, or until somebody calls
    ``Queue.hand_over`` for it.
    """

    def __init__(self, url: URL, worker_id: str, can_take: CanTake) -> None:
        self._url = url
        self._worker_id = worker_id
        self._can_take = can_take

    async def run(self, handle: Handle) -> None:
        """Handle tasks until cancelled; then cancel what is in hand, wait for it, and put it back.

        Raises:
            StoreUnavailableError: the engine's database cannot be reached at the start.
        """
        bridge = _Bridge(handle)
        with claiming_only(self._can_take):
            try:
                await asyncio.to_thread(self._launch, bridge)
                await asyncio.Event().wait()
            finally:
                await asyncio.shield(self._stop(bridge))

    def _launch(self, bridge: "_Bridge") -> None:
        prepare_engine(self._url)
        DBOS(config=consumer_config(self._url, self._worker_id))
        for kind in TaskKind:
            _register(kind, bridge)
        with mapped_errors():
            DBOS.launch()

    async def _stop(self, bridge: "_Bridge") -> None:
        logging.getLogger("dbos").setLevel(logging.ERROR)  # it warns of every task that is cancelled
        try:
            await bridge.stop()
            await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
            await asyncio.to_thread(self._hand_over)
        finally:
            logging.getLogger("dbos").setLevel(logging.WARNING)

    def _hand_over(self) -> None:
        try:
            queue = DbosQueue(self._url)
        except StoreUnavailableError as error:
            log.warning("what this worker had in hand waits for its return: %s", error)
            return
        try:
            for task in queue.hand_over(self._worker_id):
                log.info(
                    "%s goes to another worker: this one stops", task.key, extra={"fields": task.log_fields}
                )
        except StoreUnavailableError as error:
            log.warning("what this worker had in hand waits for its return: %s", error)
        finally:
            queue.close()


class _Bridge:
    """From DBOS's loop to the loop on which it was made."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._in_hand: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def handle(self, task: Task) -> None:
        """Handle a task; called on DBOS's loop. Cancelling this cancels the handling."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._handled(task), self._loop))

    async def stop(self) -> None:
        """Cancel what is in hand, take nothing more, and wait until all handling has ended."""
        self._stopping = True
        in_hand = tuple(self._in_hand)
        for task in in_hand:
            task.cancel()
        await asyncio.gather(*in_hand, return_exceptions=True)

    async def _handled(self, task: Task) -> None:
        if self._stopping:
            raise asyncio.CancelledError
        current = asyncio.current_task()
        assert current is not None
        self._in_hand.add(current)
        try:
            await self._handle(task)
        except (StoreUnavailableError, PostponedError) as error:
            why = str(error).splitlines()[0]
            log.warning("%s is begun again later: %s", task.key, why, extra={"fields": task.log_fields})
            raise
        finally:
            self._in_hand.discard(current)


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


def _takes_all(_needs: str) -> bool:
    return True


def open_consumer(settings: StoreSettings, worker_id: str, can_take: CanTake = _takes_all) -> Consumer:
    """The consumer of a store's queue.

    Args:
        settings: where the engine's database is.
        worker_id: unique among all workers, and the same again when this worker returns.
        can_take: asked of tasks that need something; those that need nothing are always taken.
    """
    return DbosConsumer(settings.engine, worker_id, can_take)
