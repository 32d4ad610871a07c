"""No job outlives its zygote or its supervisor."""

import asyncio
import errno
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

import pytest

from worker.errors import ZygoteLostError
from worker.job.folder import remove_job_folder
from worker.protocol.order import ANSWERS, Exited
from worker.supervisor.processes import processes, read_process
from worker.supervisor.work_dir import claim_work_dir
from worker.supervisor.zygote_handle import CHECKOUT

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
    from worker.job.folder import make_job_folder, seal
    from worker.protocol.order import InspectWork, StartJob
    from worker.settings import WorkerSettings
    from worker.supervisor.work_dir import claim_work_dir
    from worker.supervisor.zygote_handle import ZygoteHandle

    async def main():
        model, work = map(Path, sys.argv[1:])
        settings = WorkerSettings()
        with claim_work_dir(work) as place:
            uid = place.slot_uid(65_000, 0)
            folder = make_job_folder(place.jobs / "job", uid)
            folder.model.write_bytes(model.read_bytes())
            seal(folder.model, uid)
            order = StartJob(
                job="job", folder=str(folder.path), cores=2,
                confinement=settings.confinement(uid), work=InspectWork(),
            )
            zygote = ZygoteHandle(place.groups)
            job = await zygote.start_job(order)
            print(zygote.pid, job.pid, flush=True)
            time.sleep(600)

    asyncio.run(main())
"""


FORKLESS = """
    import errno, os, pyseccomp, sys
    from pathlib import Path
    from worker.protocol.order import InspectWork, StartJob
    from worker.settings import WorkerSettings
    from worker.job.folder import JobFolder
    from worker.job.zygote import Pipes, Zygote

    folder = JobFolder(Path(sys.argv[1]))
    for fifo in (folder.messages, folder.grants):
        os.mkfifo(fifo)
    reading = os.open(folder.messages, os.O_RDONLY | os.O_NONBLOCK)
    orders, ordering = os.pipe()
    order = StartJob(
        job="job", folder=str(folder.path), cores=1,
        confinement=WorkerSettings().confinement(None), work=InspectWork(),
    )
    os.write(ordering, order.model_dump_json().encode() + b"\\n")
    os.close(ordering)
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in ("fork", "vfork", "clone", "clone3"):
        rules.add_rule(pyseccomp.ERRNO(errno.EAGAIN), name)
    rules.load()
    Zygote(Pipes(orders=orders, answers=1, wakeups=os.pipe()[0]), "").serve()
    assert os.read(reading, 1) == b"", "the writing end is still open"
"""


def members(group: int) -> int:
    return sum(process.group == group and not process.zombie for process in processes())


def ended(pid: int) -> bool:
    process = read_process(pid)
    return process is None or process.zombie


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def eventually(condition: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def eventually_on(rig: Rig, condition: Callable[[], bool]) -> bool:
    """The same while the rig's event loop runs."""
    return bool(rig.runner.run(asyncio.to_thread(eventually, condition)))


@pytest.mark.slow
def test_a_stalled_zygote_is_killed_with_its_jobs_and_restarted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, order = rig.start(SPAWN), rig.order("return 'never runs'")
    assert eventually(lambda: members(job.pid) == 4)
    first = rig.zygote.pid
    os.kill(first, signal.SIGSTOP)
    with monkeypatch.context() as impatient, pytest.raises(ZygoteLostError):
        impatient.setattr(rig.zygote, "answer_seconds", 1.0)
        rig.runner.run(rig.zygote.start_job(order))
    remove_job_folder(Path(order.folder))
    assert rig.end(job).zygote_lost
    assert members(job.pid) == 0
    assert rig.confined("return 'runs'").did == "runs"
    assert rig.zygote.pid != first


def test_a_zygote_that_hides_the_end_of_a_job_is_killed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rig.start(SPAWN)
    monkeypatch.setattr(rig.zygote, "answer_seconds", 1.0)
    os.kill(rig.zygote.pid, signal.SIGSTOP)
    os.kill(job.pid, signal.SIGKILL)
    assert rig.runner.run(asyncio.wait_for(asyncio.shield(job.exited), 30)).zygote_lost
    rig.end(job)


@pytest.mark.slow
def test_a_job_whose_group_cannot_be_recorded_is_ended(rig: Rig) -> None:
    order = rig.order(SPAWN)
    in_the_way = rig.place.folder / "groups.new"
    in_the_way.mkdir()
    try:
        with pytest.raises(IsADirectoryError):
            rig.runner.run(rig.zygote.start_job(order))
        assert eventually_on(rig, lambda: not children(rig.zygote.pid))
    finally:
        in_the_way.rmdir()
        remove_job_folder(Path(order.folder))


def test_an_abandoned_job_is_ended(rig: Rig) -> None:
    order = rig.order(SPAWN)

    async def give_up() -> None:
        starting = asyncio.create_task(rig.zygote.start_job(order))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    rig.runner.run(give_up())
    assert rig.confined("return 'runs'").did == "runs"
    assert eventually_on(rig, lambda: not children(rig.zygote.pid))
    remove_job_folder(Path(order.folder))
    assert not (rig.place.folder / "groups").read_text()


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
    assert eventually(lambda: members(job) == 0 and ended(zygote))
    with claim_work_dir(work) as place:
        assert not tuple(place.jobs.iterdir())
    shutil.rmtree(work)


def test_a_zygote_that_cannot_fork_says_so_and_goes_on(tmp_path: Path) -> None:
    script = [sys.executable, "-c", textwrap.dedent(FORKLESS), str(tmp_path)]
    shown = subprocess.run(script, capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert ANSWERS.validate_json(shown.stdout) == Exited(job="job", status=errno.EAGAIN, signal=0)
