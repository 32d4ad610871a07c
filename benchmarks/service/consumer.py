"""A queue consumer that ends each job at once: ``consumer SETTINGS``.

It uses the real consumer and the real rows, but does no work. It prints one line per job: its id and the time
at which handling began.
"""

import asyncio
import contextlib
import signal
import sys
import time

from bessemer.store.queue.dbos_consumer import open_consumer
from bessemer.store.queue_port import Task
from bessemer.store.settings import StoreSettings
from bessemer.store.store import open_store


async def main() -> None:
    """Handle jobs until SIGTERM."""
    settings = StoreSettings.model_validate_json(sys.argv[1])
    store = open_store(settings)

    async def handle(task: Task) -> None:
        sys.stdout.write(f"{task.id} {time.time()}\n")
        sys.stdout.flush()
        attempt = await asyncio.to_thread(store.jobs.start, task.id, "benchmark")
        if attempt is not None:
            await asyncio.to_thread(store.jobs.cancel_finished, task.id, attempt)

    running = asyncio.create_task(open_consumer(settings, "benchmark").run(handle))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    store.close()


asyncio.run(main())
