"""The zygote's own end, and its supervisor's: no job outlives either."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker.processes import processes
from worker.workplace import claim_workplace
from worker.zygote_handle import CHECKOUT

Rig = Any
SPAWN = """
    import time
    for _ in range(3):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(600)
"""
SUPERVISOR = """
    import asyncio, sys, time
    from pathlib import Path
    from worker.job_folder import make_job_folder, seal_model
    from worker.order import InspectWork, StartJob
    from worker.settings import WorkerSettings
    from worker.workplace import claim_workplace
    from worker.zygote_handle import Zygote

    async def main():
        model, work = map(Path, sys.argv[1:])
        settings = WorkerSettings()
        with claim_workplace(work) as place:
            uid = place.slot_uid(65_000, 0)
            folder = make_job_folder(place.jobs / "job", uid)
            folder.model.write_bytes(model.read_bytes())
            seal_model(folder, uid)
            order = StartJob(
                job="job", folder=str(folder.path), messages=str(folder.messages), cores=2,
                confinement=settings.confinement(uid), work=InspectWork(),
            )
            zygote = Zygote(place.groups)
            job = await zygote.start_job(order)
            print(zygote.pid, job.pid, flush=True)
            time.sleep(600)

    asyncio.run(main())
"""


def members(group: int) -> int:
    return sum(process.group == group and not process.zombie for process in processes())


def eventually(condition: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_job_does_not_outlive_the_zygote_which_is_started_again(rig: Rig) -> None:
    job = rig.start(SPAWN)
    assert eventually(lambda: members(job.pid) == 4)
    first = rig.zygote.pid
    os.kill(first, signal.SIGKILL)
    exit = rig.end(job)
    assert exit.zygote_lost
    assert members(job.pid) == 0
    assert rig.confined("return 'runs'").did == "runs"
    assert rig.zygote.pid != first


def test_neither_zygote_nor_job_outlive_the_supervisor(rig: Rig, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_bytes(rig.model(SPAWN))
    work = Path("/tmp") / f"bessemer-orphans-{os.getpid()}"
    script = [sys.executable, "-c", textwrap.dedent(SUPERVISOR), str(model), str(work)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT) as supervisor:
        assert supervisor.stdout is not None
        zygote, job = map(int, supervisor.stdout.readline().split())
        assert eventually(lambda: members(job) == 4)
        supervisor.kill()
    assert eventually(lambda: members(job) == 0 and not Path(f"/proc/{zygote}").exists())
    with claim_workplace(work) as place:
        assert not tuple(place.jobs.iterdir())
    shutil.rmtree(work)
