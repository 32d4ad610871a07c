"""The worker's process: a supervisor with its zygote."""

import asyncio
import logging
import signal
import sys
from collections.abc import Iterator

from bessemer.store.errors import StoreUnavailableError
from bessemer.store.privacy import keep_private
from bessemer.store.quotas import QuotaFileError
from bessemer.store.settings import StoreSettings, read_settings
from bessemer.telemetry.logs import LogSettings, set_up_logs
from bessemer.telemetry.traces import TelemetryMissingError
from worker.errors import WorkerError
from worker.settings import WorkerSettings
from worker.supervisor.run import run_supervisor


async def _run(settings: WorkerSettings, store_settings: StoreSettings) -> None:
    loop = asyncio.get_running_loop()
    supervisor = asyncio.ensure_future(run_supervisor(settings, store_settings))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.cancel)
    try:
        await supervisor
    except asyncio.CancelledError:
        logging.getLogger("worker").info("stopped")


def main() -> int:
    """Work until SIGINT or SIGTERM."""
    status = 0
    settings, store_settings = read_settings(WorkerSettings), read_settings(StoreSettings)
    set_up_logs(read_settings(LogSettings))
    keep_private(store_settings.folder)
    try:
        asyncio.run(_run(settings, store_settings))
    except* (StoreUnavailableError, QuotaFileError, TelemetryMissingError, WorkerError) as errors:
        for error in _leaves(errors):
            sys.stderr.write(f"the worker stopped: {str(error).splitlines()[0]}\n")
        status = 1
    return status


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The single errors in a group."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
