"""Jobs of malicious models, and what a supervisor notes of them."""

import time
from collections.abc import Callable
from pathlib import Path

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.options import BenchmarkOptions, TuneOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.tensor import TensorSpec
from bessemer.store.queue_port import Task, TaskKind
from bessemer.store.store import Store
from tests.integration.malicious_models import malicious_model
from worker.supervisor.processes import processes

WAIT_SECONDS = 120.0


def upload(store: Store, folder: Path, body: str, tenant: str = DEFAULT_TENANT) -> str:
    """Store a malicious model and return its digest."""
    path = folder / "model"
    path.write_bytes(malicious_model(body))
    return store.for_tenant(tenant).artifacts.put_file(path).digest


def submit(
    store: Store,
    job_id: str,
    digest: str,
    timeout_seconds: float | None = None,
    cores: int | None = None,
    tenant: str = DEFAULT_TENANT,
    stop_after: Stage | None = None,
    tune: TuneOptions | None = None,
) -> Task:
    """Submit the compilation of a malicious model for this machine, or one like it with other cores."""
    request = CompilationRequest.model_validate(
        {
            "model": digest,
            "target": {"preset": "host", "cores": cores},
            "inputs": (TensorSpec(name="input", shape=(8,)),),
            "benchmark": BenchmarkOptions(seconds=0.05),
            "timeout_seconds": timeout_seconds,
            "tune": tune or TuneOptions(),
            "stop_after": stop_after,
        }
    )
    store.for_tenant(tenant).jobs.submit(job_id, request)
    return Task(TaskKind.COMPILE, job_id)


def groups_noted(place: Path) -> tuple[int, ...]:
    """The groups that run, as the supervisor has noted them."""
    return tuple(int(line.split()[1]) for line in (place / "groups").read_text().splitlines())


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds.

    Raises:
        TimeoutError: it did not come to hold within ``WAIT_SECONDS``.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


def members(group: int) -> int:
    """How many processes of a group run."""
    return sum(process.group == group and not process.zombie for process in processes())
