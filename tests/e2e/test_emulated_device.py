"""A compilation for another platform, verified by an emulated device.

``TEST_AARCH64_ROOT`` names a folder with an aarch64 Python (``usr/bin/python3.11``) and its libraries: then
the device itself runs under emulation, too.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from saved_models import Saved

from bessemer.client import Client
from bessemer.client.unpacking import check_bundle
from bessemer.contract.device import Device
from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import Execution
from bessemer.contract.target import ExplicitTarget
from bessemer.errors import CompilationFailedError
from examples.models.save import SavedAs
from worker import device as program
from worker.compiler.platforms import launcher_of

EMULATOR, SYSROOT = Path("/usr/bin/qemu-aarch64-static"), Path("/usr/aarch64-linux-gnu")
RISCV_EMULATOR, RISCV_SYSROOT = Path("/usr/bin/qemu-riscv64-static"), Path("/usr/riscv64-linux-gnu")
MUSL = "riscv64-unknown-linux-musl"
ROOT_VARIABLE = "TEST_AARCH64_ROOT"
WAIT_SECONDS = 90.0
NEEDS_EMULATOR = pytest.mark.skipif(
    not (EMULATOR.exists() and SYSROOT.exists()), reason="qemu-user-static or libc6-arm64-cross is missing"
)


def python() -> list[str]:
    """The command of this Python, or of an aarch64 Python."""
    root = os.environ.get(ROOT_VARIABLE)
    return [str(EMULATOR), "-L", root, f"{root}/usr/bin/python3.11"] if root else [sys.executable]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can pass through: the programs of a root's device run as another user."""
    with tempfile.TemporaryDirectory(prefix="bessemer-board-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def emulated_board(
    url: str, folder: Path, platform: str, launcher: str, *options: str
) -> Iterator[tuple[Device, subprocess.Popen[bytes]]]:
    names = ["--name", "board", "--platform", platform, "--launcher", launcher, "--folder", str(folder)]
    command = [*python(), program.__file__, "--url", url, *names, *options]
    with Client(url) as client, subprocess.Popen(command) as process:
        try:
            deadline = time.monotonic() + WAIT_SECONDS
            while not (found := [each for each in client.devices().items if each.name == "board"]):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield found[0], process
        finally:
            process.terminate()


@NEEDS_EMULATOR
def test_a_library_for_aarch64_is_verified_by_an_emulated_device(
    service: str, saved: Saved, tmp_path: Path, folder: Path
) -> None:
    launcher = f"{EMULATOR} -L {SYSROOT}"
    with emulated_board(service, folder, "aarch64", launcher) as (device, process), Client(service) as client:
        assert (device.emulated, device.features) == (True, ())
        job = client.submit(saved.path("mlp", SavedAs.PT2), target="aarch64").wait()
        document, report = job.document, job.report()
        bundle = job.download(tmp_path / "bundle")
        process.terminate()
        assert process.wait(30) == 0
    assert [*folder.iterdir()] == []
    assert (document.verified, document.figures) == (True, None)
    assert (report.verified, report.execution) == (True, Execution.DEVICE)
    assert report.device is not None
    assert (report.device.name, report.device.emulated, report.device.latency) == ("board", True, None)
    assert [output.mismatches for entry in report.device.entries for output in entry.outputs] == [0]
    assert check_bundle(bundle).program == "run"
    assert "verified on board, which is emulated" in (bundle / "report.html").read_text()


@NEEDS_EMULATOR
def test_an_emulated_device_ranks_the_candidates_of_a_search_that_names_it(
    service: str, saved: Saved, folder: Path
) -> None:
    launcher, options = f"{EMULATOR} -L {SYSROOT}", TuneOptions(trials=2)
    model = saved.path("mlp", SavedAs.PT2)
    with emulated_board(service, folder, "aarch64", launcher), Client(service) as client:
        job = client.submit(model, target="aarch64", tune=options, device="board").wait()
        report = job.report()
        events = [event.data for event in job.events() if event.type == "progress"]
        with pytest.raises(CompilationFailedError) as raised:
            client.submit(model, target="aarch64", tune=options).wait()
    assert raised.value.problem.code is ErrorCode.TARGET_NOT_RUNNABLE
    assert [*folder.iterdir()] == []
    assert (report.verified, report.execution) == (True, Execution.DEVICE)
    assert report.tune is not None
    assert (report.tune.trials, sum(task.failed for task in report.tune.tasks)) == (2, 0)
    assert [(device.name, device.emulated) for device in report.tune.devices] == [("board", True)]
    waits = [event for event in events if event["detail"] == "device 'board' runs the candidates"]
    assert {event["stage"] for event in waits} <= {"tune"}  # a batch may end between two looks at it


@pytest.fixture
def musl(tmp_path: Path) -> Path:
    """A sysroot in which glibc has the names of musl's files."""
    libraries = tmp_path / "sysroot" / "lib"
    libraries.mkdir(parents=True)
    for path in (RISCV_SYSROOT / "lib").iterdir():
        (libraries / path.name).symlink_to(path)
    (libraries / "libc.so").symlink_to(RISCV_SYSROOT / "lib" / "libc.so.6")
    (libraries / "ld-musl-riscv64.so.1").symlink_to(RISCV_SYSROOT / "lib" / "ld-linux-riscv64-lp64d.so.1")
    return tmp_path / "sysroot"


@pytest.mark.skipif(
    not (RISCV_EMULATOR.exists() and RISCV_SYSROOT.exists()),
    reason="qemu-user-static or libc6-riscv64-cross is missing",
)
@pytest.mark.skipif(launcher_of(MUSL) is not None, reason="the worker can run such programs itself")
def test_a_compilation_that_only_a_device_can_verify_waits_for_one(
    service: str, saved: Saved, tmp_path: Path, folder: Path, musl: Path
) -> None:
    target = ExplicitTarget(mcpu="generic-rv64", triple=MUSL, features=("+m", "+a", "+f", "+d", "+c"))
    launcher = f"{RISCV_EMULATOR} -L {musl}"
    with Client(service) as client:
        job = client.submit(saved.path("mlp", SavedAs.PT2), target=target)
        queue = job.refresh().document.queue
        assert queue is not None
        assert "a device of the platform riscv64-musl" in str(queue.waiting_for)
        with emulated_board(service, folder, "riscv64-musl", launcher, "--uid", str(os.geteuid())):
            job.wait()
        report = job.report()
        bundle = job.download(tmp_path / "bundle")
    assert (job.document.verified, report.execution) == (True, Execution.DEVICE)
    assert report.comparisons == ()
    assert report.device is not None
    assert report.device.platform == "riscv64-musl"
    assert check_bundle(bundle).tolerances[0].relative > 0
