"""The commands of docs/backups.md, on SQLite and on PostgreSQL."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from saved_models import Saved

from bessemer.client import Client
from bessemer.contract.job import JobState
from bessemer.contract.options import TuneOptions
from examples.local_postgresql import postgresql_server
from examples.local_service import ROOT, local_service
from examples.models.save import SavedAs

DATA, ARTIFACTS = "bessemer-data", "artifacts"


@dataclass(frozen=True)
class Place:
    """A service's state: its settings, and variables for the page's commands."""

    settings: Mapping[str, str]
    variables: Mapping[str, str]


Places = Callable[[], AbstractContextManager[Place]]


@contextmanager
def sqlite() -> Iterator[Place]:
    yield Place({}, {})


@contextmanager
def postgresql() -> Iterator[Place]:
    with postgresql_server() as server:
        path = f"{server.server.bin_path}:{os.environ['PATH']}"
        yield Place({"BESSEMER_DATABASE_URL": server.url}, {"DATABASE": server.url, "PATH": path})


def scripts(section: str) -> tuple[str, str]:
    """The commands of a section: the backup and the restore."""
    page = (ROOT / "docs" / "backups.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    backup, restore = ("\n".join(line.removeprefix("$ ") for line in block.splitlines()) for block in blocks)
    return backup, restore


def paste(script: str, folder: Path, place: Place) -> None:
    environment = {**os.environ, **place.variables}
    subprocess.run(["bash", "-euc", script], cwd=folder, env=environment, check=True)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("section", "places"),
    [("SQLite and a folder", sqlite), ("PostgreSQL and a folder", postgresql)],
    ids=["sqlite", "postgresql"],
)
def test_a_restore_brings_back_what_a_backup_of_a_running_service_saved(
    tmp_path: Path, saved: Saved, section: str, places: Places
) -> None:
    backup, restore = scripts(section)
    data, model = tmp_path / DATA, saved.path("mlp", SavedAs.PT2)
    with places() as place, local_service(data, place.settings) as url, Client(url) as client:
        finished = client.submit(model, target="host").wait()
        logs = finished.logs()
        running = client.submit(model, target="host", tune=TuneOptions(trials=500))
        while running.refresh().state is not JobState.RUNNING:
            time.sleep(0.1)
        paste(backup, tmp_path, place)
    shutil.rmtree(data)
    (data / ARTIFACTS).mkdir(parents=True)

    with places() as place:
        paste(restore, tmp_path, place)
        with local_service(data, place.settings) as url, Client(url) as client:
            restored = client.job(finished.id)
            assert restored.document.artifacts == finished.document.artifacts
            assert restored.logs() == logs
            bundle = restored.download(tmp_path / "bundle")
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=bundle, check=True)
            assert client.model(finished.document.request.model).state == "ready"
            again = client.job(running.id).cancel(keep_best=True)
            assert again.wait().document.verified
