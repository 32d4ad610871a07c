"""The images and the compose file, run by a container engine."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from bessemer import TuneOptions
from bessemer.client import Job
from bessemer.contract.job import Event, EventType, JobState
from bessemer.contract.report import Execution
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from tests.containers.conftest import Started, wait_until_healthy, workers_alive
from tests.containers.stack import docker, inspect

HEAVY = ("torch", "tvm", "numpy", "ziglang")
SERVICES = ("app", "worker", "database", "objects")
FOREIGN = {"aarch64", "aarch64-musl", "riscv64", "x86_64-musl"}
LONG = TuneOptions(trials=96)
JOB_SECONDS = 600.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "mlp.pt2"
    save(EXAMPLES["mlp"], SavedAs.PT2, path)
    return path


@pytest.mark.parametrize(
    ("image", "contained"), [("bessemer-app", False), ("bessemer-worker", True), ("bessemer-device", False)]
)
def test_only_the_workers_image_contains_torch_and_tvm(
    image: str, contained: bool, images: tuple[str, ...]
) -> None:
    """It has them without the headers of any C library."""
    assert image in images
    check = f"import json, importlib.util as u; print(json.dumps([bool(u.find_spec(m)) for m in {HEAVY}]))"
    found = docker("run", "--rm", "--entrypoint", "python", image, "-c", check)
    assert json.loads(found) == [contained] * len(HEAVY)


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


def test_the_apps_image_serves_the_console_and_the_guide(started: Started) -> None:
    """The guide needs no key, and its search no other host."""
    with httpx.Client(base_url=started.stack.url, follow_redirects=True, timeout=60) as browser:
        assert browser.get("/").url.path == "/console/sign-in"
        signed_in = browser.post(
            "/console/sign-in", data={"key": started.stack.key}, headers={"Sec-Fetch-Site": "same-origin"}
        )
        assert (signed_in.status_code, signed_in.url.path) == (200, "/console/compilations")
        assert browser.get("/guide/search/search_index.json").json()["docs"]
        for path in ("/console/submit", "/guide", "/guide/usage/"):
            page = browser.get(path)
            assert page.status_code == 200, path
            assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; "), path


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


def test_workers_verify_libraries_for_every_platform_of_linux(started: Started) -> None:
    """Their image has the emulators and the C libraries of all but RISC-V's musl."""
    for worker in started.client.workers().items:
        assert set(worker.capability.programs) == FOREIGN


def test_a_device_in_a_container_verifies_and_measures(started: Started, model: Path) -> None:
    """Its user owns nothing, its root is read-only, and it can reach the service only."""
    confined = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    place = ("--tmpfs", "/tmp:exec,mode=1777,size=1g", "--network", "host", "--init")
    key = ("--env", f"BESSEMER_API_KEY={started.stack.key}")
    words = ("bessemer-device", "--url", started.stack.url, "--name", "board", "--once")
    container = docker("run", "--detach", *confined, *place, *key, *words)
    try:
        job = started.client.submit(model, target="x86-64-v2", device="board").wait(JOB_SECONDS)
        assert job.document.state is JobState.SUCCEEDED, (job.document.problem, docker("logs", container))
        report = job.report()
        assert report.device is not None
        assert (report.execution, report.device.name, report.device.emulated) == (
            Execution.DEVICE,
            "board",
            False,
        )
        assert docker("wait", container) == "0"
    finally:
        docker("rm", "--force", container)


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
