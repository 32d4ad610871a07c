"""Bundles run on systems that have a C library and nothing of ours: no Python, no TVM."""

import secrets
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bessemer.contract.job import JobState
from bessemer.contract.target import ExplicitTarget, PresetTarget, Target
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save
from tests.containers.conftest import Started
from tests.containers.stack import docker

JOB_SECONDS = 600.0
EMULATOR = Path("/usr/bin/qemu-aarch64-static")
ARM = "linux/arm64"
MUSL = ExplicitTarget(mcpu="x86-64-v2", triple="x86_64-unknown-linux-musl")
BUNDLE = "/tmp/bundle.tar"


@dataclass(frozen=True)
class System:
    """A system's image, and the target whose libraries run there."""

    image: str
    target: Target
    platform: str = "linux/amd64"

    @property
    def missing(self) -> str | None:
        """What this machine lacks to run the system, or None."""
        return (
            f"{EMULATOR} is missing: see ci/emulators"
            if self.platform == ARM and not EMULATOR.exists()
            else None
        )


SYSTEMS = {
    "Debian": System("debian:bookworm-slim", PresetTarget(preset="x86-64-v2")),
    "Alpine": System("alpine:3.22", MUSL),
    "Debian for Arm": System("arm64v8/debian:bookworm-slim", PresetTarget(preset="aarch64"), platform=ARM),
}


@dataclass(frozen=True)
class Machine:
    """A container of a bare system. ``emulator`` stands before the words of each command."""

    container: str
    emulator: tuple[str, ...]

    def run(self, *command: str) -> str:
        """The output of a command."""
        return docker("exec", "--workdir", "/tmp", self.container, *self.emulator, *command)


@contextmanager
def machine(system: System) -> Iterator[Machine]:
    """Start a bare system, with an emulator as its only addition if it is another processor's."""
    name = f"bessemer-test-{secrets.token_hex(4)}"
    emulator = ("/emulator",) if system.platform == ARM else ()
    sleep = (*emulator, "/bin/sleep", "900")
    options = ("--name", name, "--platform", system.platform, "--network", "none")
    docker("create", *options, "--entrypoint", sleep[0], system.image, *sleep[1:])
    try:
        if emulator:
            docker("cp", "--follow-link", str(EMULATOR), f"{name}:{emulator[0]}")
        docker("start", name)
        yield Machine(name, emulator)
    finally:
        docker("rm", "--force", "--volumes", name)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "cnn.pt2"
    save(EXAMPLES["cnn"], SavedAs.PT2, path)
    return path


@pytest.mark.parametrize("label", SYSTEMS)
def test_an_unpacked_bundle_runs_on_a_bare_system(
    label: str, started: Started, model: Path, tmp_path: Path
) -> None:
    """The worker's image verifies libraries for all of these before."""
    system = SYSTEMS[label]
    if system.missing:
        pytest.skip(system.missing)
    job = started.client.submit(model, target=system.target).wait(JOB_SECONDS)
    assert job.document.state is JobState.SUCCEEDED, job.document.problem
    assert job.report().verified
    archive = tmp_path / "bundle.tar"
    with tarfile.open(archive, "w") as packed:
        packed.add(job.download(tmp_path / "bundle"), arcname=".")

    with machine(system) as bare:
        docker("cp", str(archive), f"{bare.container}:{BUNDLE}")
        bare.run("/bin/sh", "-c", "! command -v python3")
        bare.run("/bin/tar", "-xf", BUNDLE)
        assert ": matches the reference (" in bare.run("/tmp/run")
