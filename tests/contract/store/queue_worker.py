"""A worker of the queue in a process of its own: ``queue_worker SETTINGS WORKER_ID``.

Prints one line per task as it begins. Tasks whose id begins with ``stuck`` never end. Every address that
Python code connects to is printed as well.
"""

import asyncio
import contextlib
import signal
import sys

from bessemer.store.queue.dbos_consumer import open_consumer
from bessemer.store.queue_port import Task
from bessemer.store.settings import StoreSettings


def watch_connections(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        print(f"{event} {arguments}", flush=True)


async def handle(task: Task) -> None:
    print(task.key, flush=True)
    if task.id.startswith("stuck"):
        await asyncio.Event().wait()


async def main() -> None:
    consumer = open_consumer(StoreSettings.model_validate_json(sys.argv[1]), sys.argv[2])
    running = asyncio.create_task(consumer.run(handle))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    print("compilers:", sorted({"torch", "tvm"} & sys.modules.keys()), flush=True)


sys.addaudithook(watch_connections)
asyncio.run(main())
