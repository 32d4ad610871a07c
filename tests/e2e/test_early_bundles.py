"""Bundles that can be downloaded while a search runs."""

import time
from pathlib import Path

import httpx
import pytest
import torch

from bessemer.bundle.manifest import ARCHIVE
from bessemer.client import Client, Job
from bessemer.contract.job import EventType, JobState
from bessemer.contract.options import TuneOptions
from examples.models import EXAMPLES

LONG = TuneOptions(trials=5_000, publish_early=True)
PATIENCE_SECONDS = 300.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("early") / "mlp.pt2"
    torch.export.save(torch.export.export(EXAMPLES["mlp"].build().eval(), (torch.zeros(1, 784),)), path)
    return path


def wait_for_bundle(job: Job) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not job.refresh().document.artifacts:
        assert not job.state.final, job.document.problem
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_first_bundle_is_there_while_the_search_runs_and_stays_after_it_is_cancelled(
    service: str, model: Path, tmp_path: Path
) -> None:
    with Client(service) as client:
        job = client.submit(model, target="host", tune=LONG, cache=False)
        wait_for_bundle(job)
        assert job.state is JobState.RUNNING
        assert (job.download(tmp_path / "running") / "run.py").is_file()
        job.cancel()
        while not job.refresh().state.final:
            time.sleep(0.2)
        assert job.state is JobState.CANCELLED
        (archive,) = (file for file in job.document.artifacts if file.name == ARCHIVE)
        assert (job.download(tmp_path / "cancelled") / "model.so").read_bytes()
    stored = httpx.head(f"{service}/v1/compilations/{job.id}/artifacts/{ARCHIVE}", timeout=60)
    assert stored.headers["ETag"].strip('"') == archive.digest


def test_the_last_bundle_replaces_the_first_and_events_tell_both(
    service: str, model: Path, tmp_path: Path
) -> None:
    events = []
    with Client(service) as client:
        job = client.submit(model, target="host", tune=TuneOptions(trials=2, publish_early=True), cache=False)
        job.wait(on_event=events.append)
        assert (job.download(tmp_path / "bundle") / "report.html").is_file()
    published = [event for event in events if event.type is EventType.PUBLISHED]
    assert len(published) == 1
    (early,) = (file["digest"] for file in published[0].data["artifacts"] if file["name"] == ARCHIVE)
    (last,) = (file.digest for file in job.document.artifacts if file.name == ARCHIVE)
    assert early != last
    assert published[0].data["figures"]["check"]["max_absolute_error"] >= 0
    assert job.document.verified
