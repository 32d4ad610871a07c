"""Following the best bundle from the command line."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from bessemer.cli.best_bundle import BestBundle
from bessemer.cli.timeline import event_line
from bessemer.contract.base import now
from bessemer.contract.job import ONLY_OWN_PROCESSOR, Compilation, Event, EventType, Figures, JobState
from bessemer.contract.report import Latency
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import HOST, PresetTarget, resolve_target
from bessemer.errors import BundleError, UnreachableError

FIGURES = Figures(
    latency=Latency(runs=3, min_ms=1, p50_ms=1, mean_ms=1, stddev_ms=0),
    baselines=(),
    library_bytes=1,
    peak_memory_bytes=1,
    max_absolute_error=0.0,
)


@dataclass
class Published:
    """A job whose bundle was replaced during the first ``replaced`` downloads."""

    replaced: int = 0
    is_reachable: bool = True
    downloads: list[Path] = field(default_factory=list)

    def refresh(self) -> "Published":
        if not self.is_reachable:
            raise UnreachableError("connection refused")
        return self

    def download(self, output: Path) -> None:
        self.downloads.append(output)
        if len(self.downloads) <= self.replaced:
            raise BundleError("its digest is another")


def event(kind: EventType, **data: Any) -> Event:
    return Event(seq=1, type=kind, at=datetime.now(UTC), data=data)


def followed(job: Published, *events: Event) -> str:
    text = StringIO()
    best = BestBundle(cast(Any, job), Path("best"), Console(file=text, width=200))
    for each in events:
        best.on_event(each)
    return text.getvalue()


def test_each_published_bundle_is_downloaded_over_the_one_before_it() -> None:
    job = Published()
    events = (event(EventType.PUBLISHED), event(EventType.PUBLISHED, figures={"latency": {"p50_ms": 1.25}}))
    shown = followed(job, event(EventType.PROGRESS), *events)
    assert job.downloads == [Path("best")] * 2
    assert [line.split(", ", 1)[1] for line in shown.splitlines()] == [
        "verified, not measured yet",
        "the best so far",
    ]


def test_a_bundle_that_was_replaced_during_its_download_is_left_to_the_next_event() -> None:
    job = Published(replaced=1)
    assert followed(job, event(EventType.PUBLISHED)) == ""
    assert "not measured yet" in followed(job, event(EventType.PUBLISHED))


def test_an_outage_of_the_server_ends_neither_the_job_nor_the_command() -> None:
    shown = followed(Published(is_reachable=False), event(EventType.PUBLISHED))
    assert shown == "bundle     not downloaded, the compilation goes on: connection refused\n"


def test_a_published_bundle_has_a_line_with_its_latency() -> None:
    figures = {"latency": {"p50_ms": 1.25}}
    assert event_line(event(EventType.PUBLISHED, figures=figures)) == "published  a verified bundle, 1.25 ms"
    assert event_line(event(EventType.PUBLISHED)) == "published  a verified bundle, not measured yet"


def ended(
    state: JobState = JobState.SUCCEEDED,
    cached: bool = False,
    figures: Figures | None = None,
    preset: str = "aarch64",
) -> Any:
    target = PresetTarget(preset=preset)
    document = Compilation(
        id="01234567",
        state=state,
        request=CompilationRequest(model="0" * 64, target=target),
        target=resolve_target(target, HOST, 1),
        cached=cached,
        figures=figures,
        created_at=now(),
    )
    return SimpleNamespace(document=document)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (ended(), ONLY_OWN_PROCESSOR),
        (ended(figures=FIGURES.model_copy(update={"device": "board"})), ONLY_OWN_PROCESSOR),
        (ended(figures=FIGURES, preset="cuda-sm_90"), ONLY_OWN_PROCESSOR),
        (ended(figures=FIGURES), "see `bessemer logs 01234567`"),
        (ended(cached=True), ""),
        (ended(state=JobState.FAILED), ""),
    ],
    ids=["not-measured", "on-a-device", "on-a-gpu", "measured", "cached", "failed"],
)
def test_a_job_that_published_nothing_early_says_why(job: Any, said: str) -> None:
    text = StringIO()
    BestBundle(job, Path("best"), Console(file=text, width=200)).explain_absence()
    assert text.getvalue().startswith(f"bundle     none before the end: {said}" if said else "")
    assert bool(text.getvalue()) is bool(said)


def test_a_job_that_published_a_bundle_says_no_more() -> None:
    text = StringIO()
    best = BestBundle(ended(), Path("best"), Console(file=text, width=200), published=True)
    best.explain_absence()
    assert text.getvalue() == ""
