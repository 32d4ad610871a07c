"""Time from the order for a job until its child is confined."""

import asyncio
from pathlib import Path

from benchmarks.figure import Figure, summarize
from bessemer.contract.sandbox import SandboxStatus
from worker.job.folder import make_job_folder
from worker.protocol.messages import Confined
from worker.protocol.order import ProbeWork, StartJob
from worker.settings import WorkerSettings
from worker.supervisor.work_dir import WorkDirectory, claim_work_dir
from worker.supervisor.zygote_handle import ZygoteHandle

ROUNDS = 30
AIM_MS = 50.0


def measure_confinement(folder: Path) -> list[Figure]:
    """Start children that confine themselves and exit, from a separate zygote."""
    work = folder / "work"
    folder.chmod(0o711)
    samples, sandbox = asyncio.run(_rounds(WorkerSettings(work_dir=work)))
    layers = ", ".join(status.layer for status in sandbox.layers if status.holds)
    return [summarize(f"confinement of a job ({layers})", "ms", samples, AIM_MS)]


async def _rounds(settings: WorkerSettings) -> tuple[list[float], SandboxStatus]:
    with claim_work_dir(settings.work_dir) as place:
        zygote = ZygoteHandle(place.groups)
        try:
            reports = [await _probe(zygote, settings, place, number) for number in range(ROUNDS)]
        finally:
            await zygote.stop()
    return [report.seconds * 1000 for report in reports], reports[0].sandbox


async def _probe(
    zygote: ZygoteHandle, settings: WorkerSettings, place: WorkDirectory, number: int
) -> Confined:
    uid = place.slot_uid(settings.slot_uid_base, 0)
    folder = make_job_folder(place.jobs / str(number), uid)
    folder.model.touch()
    order = StartJob(
        job=str(number),
        folder=str(folder.path),
        confinement=settings.confinement(uid),
        cores=settings.cores,
        work=ProbeWork(),
    )
    async with await zygote.start_job(order) as job:
        said = [message async for message in job.messages()]
        await job.exited
    (report,) = (message for message in said if isinstance(message, Confined))
    return report
