"""The images and the compose file, run by a container engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bessemer import TuneOptions
from bessemer.client import Job
from bessemer.contract.job import Event, EventType, JobState
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from tests.containers.conftest import Started, wait_until_healthy, workers_alive
from tests.containers.stack import docker, inspect

HEAVY = ("torch", "tvm", "numpy", "ziglang")
SERVICES = ("app", "worker", "database", "objects")
LONG = TuneOptions(trials=96)
JOB_SECONDS = 600.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "mlp.pt2"
    save(EXAMPLES["mlp"], SavedAs.PT2, path)
    return path


def test_the_app_image_contains_neither_torch_nor_tvm(images: tuple[str, ...]) -> None:
    """The worker's image has both, without the tools for compiling C."""
    check = f"import json, importlib.util as u; print(json.dumps([bool(u.find_spec(m)) for m in {HEAVY}]))"
    app, worker = (json.loads(docker("run", "--rm", image, "python", "-c", check)) for image in images)
    assert app == [False] * len(HEAVY) and worker == [True] * len(HEAVY)


def test_every_container_is_confined_and_healthy(started: Started) -> None:
    for service in SERVICES:
        containers = started.stack.containers(service)
        wait_until_healthy(containers)
        for container in containers:
            found = inspect("container", container)
            host = found["HostConfig"]
            assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], service
            assert "no-new-privileges:true" in host["SecurityOpt"], service
            assert host["RestartPolicy"]["Name"] == "unless-stopped", service


def test_every_sandbox_layer_holds_in_both_workers(started: Started) -> None:
    workers = started.client.readiness().workers
    assert len({worker.id for worker in workers}) == 2
    assert [worker.sandbox.lost for worker in workers] == [(), ()]
    assert started.client.readiness().warnings == ()


def test_two_workers_run_jobs_as_different_users(started: Started) -> None:
    """A user's processes count against one limit across containers."""
    taken = (
        "import os, fcntl, glob\nfor p in sorted(glob.glob('/tmp/bessemer-users-0/*/lock')):\n"
        "  f = open(p)\n  try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n  except OSError: print(p)"
    )
    (first, _) = started.stack.containers("worker")
    assert len(docker("exec", first, "python", "-c", taken).splitlines()) == 2


def test_two_workers_take_turns_through_one_file(started: Started) -> None:
    which = "import os; s = os.stat(os.environ['BESSEMER_MEASURING_LOCK']); print(s.st_dev, s.st_ino)"
    files = {docker("exec", worker, "python", "-c", which) for worker in started.stack.containers("worker")}
    assert len(files) == 1


def test_a_bundle_compiled_in_containers_runs_outside_them(
    started: Started, model: Path, tmp_path: Path
) -> None:
    job = started.client.submit(model, target="host").wait(JOB_SECONDS)
    assert job.document.state is JobState.SUCCEEDED, job.document.problem
    bundle = job.download(tmp_path / "bundle")
    subprocess.run([sys.executable, bundle / "run.py"], check=True, cwd=tmp_path)


def test_a_killed_workers_job_completes_on_the_other(started: Started, model: Path) -> None:
    job = started.client.submit(model, target="host", tune=LONG)
    first = _worker_that_tunes(job)
    docker("kill", first.partition("-")[0])
    events: list[Event] = []
    job.wait(JOB_SECONDS, on_event=events.append)
    assert job.document.state is JobState.SUCCEEDED, job.document.problem
    assert job.document.worker not in (None, first) and job.document.attempt == 2
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_the_killed_worker_comes_back(started: Started) -> None:
    workers = started.stack.containers("worker")
    (killed,) = (worker for worker in workers if not inspect("container", worker)["State"]["Running"])
    docker("start", killed)
    wait_until_healthy(workers)
    assert workers_alive(started.client) == {worker[:12] for worker in workers}


def test_taking_the_stack_down_leaves_nothing(started: Started) -> None:
    started.stack.down()
    assert started.stack.left() == {}


def _worker_that_tunes(job: Job) -> str:
    """Wait until a worker is in the middle of the job."""
    for event in job.events():
        if event.type is EventType.STAGE_STARTED and event.data["stage"] == "tune":
            break
    worker = job.refresh().document.worker
    assert worker is not None
    return worker
