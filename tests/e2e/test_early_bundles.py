"""Bundles that can be downloaded before a compilation ends."""

import time
from pathlib import Path

import httpx

from bessemer.bundle.manifest import ARCHIVE, REPORT, REPORT_PAGE
from bessemer.client import Client, Job
from bessemer.contract.job import Event, EventType, JobState
from bessemer.contract.options import BenchmarkOptions, TuneOptions
from bessemer.contract.report import Report

LONG = TuneOptions(trials=5_000, publish_early=True)
PATIENCE_SECONDS = 300.0


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


def test_without_a_search_the_bundle_is_there_before_it_is_measured(
    service: str, model: Path, tmp_path: Path
) -> None:
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        if event.type is EventType.PUBLISHED:
            job.refresh().download(tmp_path / "early")

    with Client(service) as client:
        job = client.submit(
            model,
            target="host",
            tune=TuneOptions(publish_early=True),
            benchmark=BenchmarkOptions(seconds=5.0),
            cache=False,
        )
        job.wait(on_event=on_event)
        job.download(tmp_path / "last")
    shown = [(event.type, event.data.get("stage")) for event in events]
    at = shown.index((EventType.PUBLISHED, None))
    assert shown.index((EventType.STAGE_FINISHED, "verify")) < at
    assert at < shown.index((EventType.STAGE_FINISHED, "benchmark"))
    assert events[at].data["figures"] is None
    early, last = (
        Report.model_validate_json((tmp_path / name / REPORT).read_text()) for name in ("early", "last")
    )
    assert early.verified and early.benchmark is None
    assert last.verified and last.benchmark is not None
    assert "before it was measured" in (tmp_path / "early" / REPORT_PAGE).read_text()
    libraries = {(tmp_path / name / "model.so").read_bytes() for name in ("early", "last")}
    assert len(libraries) == 1
