"""Workers of the queue in processes of their own, for tests of the store and of the app."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bessemer.store.settings import StoreSettings

ROOT = Path(__file__).parents[1]


@contextmanager
def worker_process(settings: StoreSettings, worker_id: str) -> Iterator[subprocess.Popen[str]]:
    """A process of ``queue_worker.py``, which prints what it begins."""
    script = [sys.executable, "-W", "error", "-m", "tests.contract.store.queue_worker"]
    process = subprocess.Popen(
        [*script, settings.model_dump_json(), worker_id], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
