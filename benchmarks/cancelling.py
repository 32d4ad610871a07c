"""Time from a cancel to the end of the job's last process."""

import random
import time
from pathlib import Path
from time import perf_counter

from benchmarks.figure import Figure, summarize
from bessemer.client import Client, Job
from bessemer.contract.job import EventType
from bessemer.contract.options import TuneOptions
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from worker.supervisor.processes import processes

ROUNDS = 12
SEARCH = TuneOptions(trials=4096, spaces={"*": "metaschedule"})
LONGEST_RUN_SECONDS = 5.0
AIM_SECONDS = 2.0
_STEP_SECONDS = 0.002


def measure_cancelling(folder: Path) -> list[Figure]:
    """Cancel searching compilations at different moments."""
    model, work, dice = folder / "mlp.pt2", folder / "cancelling-work", random.Random(1)
    save(EXAMPLES["mlp"], SavedAs.PT2, model)
    folder.chmod(0o711)
    settings = {"BESSEMER_WORK_DIR": str(work)}
    with local_service(folder / "cancelling", settings) as url, Client(url) as client:
        digest = client.upload(model).digest
        samples = []
        for _ in range(ROUNDS):
            job = client.submit(digest, target="host", tune=SEARCH)
            _wait_until_begun(job)
            time.sleep(dice.uniform(0, LONGEST_RUN_SECONDS))
            samples.append(_cancel(job, work))
    return [summarize("cancel until a running job's processes are gone", "s", samples, AIM_SECONDS)]


def _wait_until_begun(job: Job) -> None:
    for event in job.events():
        if event.type is EventType.STAGE_STARTED:
            return


def _cancel(job: Job, work: Path) -> float:
    """Return the seconds since just before the request.

    Raises:
        RuntimeError: the job had no process to measure.
    """
    groups = _groups(work)
    if not _run(groups):
        raise RuntimeError(f"job {job.id} ended before it was cancelled")
    start = perf_counter()
    job.cancel()
    while _run(groups):
        time.sleep(_STEP_SECONDS)
    return perf_counter() - start


def _groups(work: Path) -> frozenset[int]:
    """The process groups of jobs, from the supervisors' records."""
    lines = (line for file in work.glob("*/groups") for line in file.read_text().splitlines())
    return frozenset(int(line.split()[1]) for line in lines)


def _run(groups: frozenset[int]) -> bool:
    return any(process.group in groups and not process.zombie for process in processes())
