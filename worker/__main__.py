"""``python -m worker``: a supervisor with its zygote."""

import asyncio
import logging
import signal
import sys

from bessemer.store.errors import StoreUnavailableError
from bessemer.store.settings import StoreSettings
from worker.errors import WorkerError
from worker.settings import WorkerSettings
from worker.supervisor import run_supervisor


async def _run() -> None:
    loop = asyncio.get_running_loop()
    supervisor = asyncio.ensure_future(run_supervisor(WorkerSettings(), StoreSettings()))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.cancel)
    try:
        await supervisor
    except asyncio.CancelledError:
        logging.getLogger("worker").info("stopped")


def main() -> int:
    """Work until SIGINT or SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(_run())
    except (StoreUnavailableError, WorkerError) as error:
        sys.stderr.write(f"the worker cannot work: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
