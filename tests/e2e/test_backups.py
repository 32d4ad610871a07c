"""The commands of docs/backups.md for SQLite and a folder, as the page has them."""

import re
import shutil
import subprocess
import time
from pathlib import Path

from saved_models import Saved

from bessemer.client import Client
from bessemer.contract.job import JobState
from bessemer.contract.options import TuneOptions
from examples.local_service import ROOT, local_service
from examples.models.save import SavedAs

SECTION = "## SQLite and a folder\n"
DATA, BACKUP = "bessemer-data", "backup"


def scripts() -> tuple[str, str]:
    """What the section has to paste: the backup, and the restore."""
    section = (ROOT / "docs" / "backups.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    backup, restore = ("\n".join(line.removeprefix("$ ") for line in block.splitlines()) for block in blocks)
    return backup, restore


def test_what_was_backed_up_while_the_service_ran_is_there_after_the_restore(
    tmp_path: Path, saved: Saved
) -> None:
    backup, restore = scripts()
    data, model = tmp_path / DATA, saved.path("mlp", SavedAs.PT2)
    with local_service(data) as url, Client(url) as client:
        finished = client.submit(model, target="host").wait()
        logs = finished.logs()
        running = client.submit(model, target="host", tune=TuneOptions(trials=500))
        while running.refresh().state is not JobState.RUNNING:
            time.sleep(0.1)
        subprocess.run(["bash", "-euc", backup], cwd=tmp_path, check=True)
    shutil.rmtree(data)
    data.mkdir()

    subprocess.run(["bash", "-euc", restore], cwd=tmp_path, check=True)

    with local_service(data) as url, Client(url) as client:
        restored = client.job(finished.id)
        assert restored.document.artifacts == finished.document.artifacts
        assert restored.logs() == logs
        bundle = restored.download(tmp_path / "bundle")
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=bundle, check=True)
        assert client.model(finished.document.request.model).state == "ready"
        again = client.job(running.id)
        while again.refresh().state is JobState.QUEUED:
            time.sleep(0.1)
        assert again.state is JobState.RUNNING
        again.cancel()
        assert client.submit(model, target="host").wait().document.verified
