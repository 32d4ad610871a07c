"""``python -m worker`` as a process of its own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from worker_samples import wait_until

from bessemer.contract.service import Worker
from bessemer.store.queue.dbos_queue import open_queue
from bessemer.store.queue_port import Queue
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from worker.supervisor.zygote_handle import CHECKOUT

LIVE_SECONDS = 10.0
LEASE_SECONDS = 3.0
SLOT_UID_BASE = 67_000
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
PLAINLY = (sys.executable, "-m", "worker")
ON_AN_OLD_KERNEL = """
import errno, os, pyseccomp, sys
rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "landlock_create_ruleset")
rules.load()
os.execv(sys.executable, [sys.executable, "-m", "worker"])
"""
WITHOUT_LANDLOCK = ("-c", ON_AN_OLD_KERNEL)
"""What Python is given to run a worker that cannot have that layer."""


@dataclass(frozen=True)
class WorkerSetup:
    """A store, its queue, and a work folder for workers that come and go; ``log`` is the last one's."""

    store: Store
    queue: Queue
    environment: dict[str, str]
    work: Path
    log: Path

    @property
    def place(self) -> Path:
        """The part of the work folder that the only worker has."""
        return self.work / "0"

    @contextmanager
    def worker(
        self, command: Sequence[str] = PLAINLY, sandbox: str = "required", worker_id: str = "worker"
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """A worker process, ended at the end as by its operator."""
        environment = self.environment | {"BESSEMER_SANDBOX": sandbox, "BESSEMER_WORKER_ID": worker_id}
        with (
            self.log.open("wb") as log,
            subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)

    def live(self) -> Worker:
        """The worker that is alive, once one is."""
        wait_until(lambda: bool(self.store.workers.live(LIVE_SECONDS)))
        return self.store.workers.live(LIVE_SECONDS)[0]


@contextmanager
def setup(
    folder: Path, variables: Mapping[str, str] = NO_VARIABLES, database_url: str | None = None
) -> Iterator[WorkerSetup]:
    """A store in a folder, or at an address, and a work folder that other users can pass through."""
    settings = StoreSettings(data=folder / "data", database_url=database_url)
    work = Path("/tmp") / f"bessemer-worker-{os.getpid()}-{folder.name}"
    environment = {
        **os.environ,
        "BESSEMER_DATA": str(settings.data),
        "BESSEMER_WORK_DIR": str(work),
        "BESSEMER_WORKER_LOST_SECONDS": str(LEASE_SECONDS),
        "BESSEMER_SLOT_UID_BASE": str(SLOT_UID_BASE),
        "BESSEMER_METRICS_PORT": "0",
        **variables,
    }
    if database_url is not None:
        environment["BESSEMER_DATABASE_URL"] = database_url
    store, queue = open_store(settings), open_queue(settings)
    try:
        yield WorkerSetup(store, queue, environment, work, folder / "worker.log")
    finally:
        queue.close()
        store.close()
        shutil.rmtree(work)
