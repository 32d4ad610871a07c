"""A compilation for another platform, verified by an emulated device.

``TEST_AARCH64_ROOT`` names a folder with an aarch64 Python (``usr/bin/python3.11``) and its libraries: then
the device itself runs under emulation, too.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from saved_models import Saved

from bessemer.client import Client
from bessemer.client.unpacking import check_bundle
from bessemer.contract.device import Device
from bessemer.contract.report import Execution
from examples.models.save import SavedAs
from worker import device as program

EMULATOR, SYSROOT = Path("/usr/bin/qemu-aarch64-static"), Path("/usr/aarch64-linux-gnu")
LAUNCHER = f"{EMULATOR} -L {SYSROOT}"
ROOT_VARIABLE = "TEST_AARCH64_ROOT"
WAIT_SECONDS = 90.0
NEEDS_EMULATOR = pytest.mark.skipif(
    not (EMULATOR.exists() and SYSROOT.exists()), reason="qemu-user-static or libc6-arm64-cross is missing"
)


def python() -> list[str]:
    """The command of this Python, or of an aarch64 Python."""
    root = os.environ.get(ROOT_VARIABLE)
    return [str(EMULATOR), "-L", root, f"{root}/usr/bin/python3.11"] if root else [sys.executable]


@contextmanager
def emulated_board(url: str, folder: Path) -> Iterator[tuple[Device, subprocess.Popen[bytes]]]:
    options = ["--name", "board", "--platform", "aarch64", "--launcher", LAUNCHER, "--folder", str(folder)]
    command = [*python(), program.__file__, "--url", url, *options]
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
    service: str, saved: Saved, tmp_path: Path
) -> None:
    folder = Path("/tmp") / f"bessemer-board-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        with emulated_board(service, folder) as (device, process), Client(service) as client:
            assert (device.emulated, device.features) == (True, ())
            job = client.submit(saved.path("mlp", SavedAs.PT2), target="aarch64").wait()
            document, report = job.document, job.report()
            bundle = job.download(tmp_path / "bundle")
            process.terminate()
            assert process.wait(30) == 0
        assert [*folder.iterdir()] == []
    finally:
        shutil.rmtree(folder)
    assert (document.verified, document.figures) == (True, None)
    assert (report.verified, report.execution) == (True, Execution.DEVICE)
    assert report.device is not None
    assert (report.device.name, report.device.emulated, report.device.latency) == ("board", True, None)
    assert [output.mismatches for entry in report.device.entries for output in entry.outputs] == [0]
    assert check_bundle(bundle).program == "run"
    assert "verified on board, which is emulated" in (bundle / "report.html").read_text()
