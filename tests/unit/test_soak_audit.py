"""Losses that the soak test counts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from benchmarks.soak.audit import event_faults, invocation_faults
from benchmarks.soak.trials import repeated_trials
from bessemer.contract.invocation import OUTPUTS, Invocation
from bessemer.contract.job import Artifact, Event, EventType, JobState

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
QUEUED, SUCCEEDED = ("queued", {}), ("succeeded", {})
Told = tuple[str, dict[str, Any]]


def started(attempt: int) -> Told:
    return "started", {"attempt": attempt}


def began(stage: str) -> Told:
    return "stage-started", {"stage": stage}


def ended(stage: str) -> Told:
    return "stage-finished", {"stage": stage}


def events(*told: Told) -> list[Event]:
    return [
        Event(seq=seq, type=EventType(kind), at=MOMENT, data=data)
        for seq, (kind, data) in enumerate(told, start=1)
    ]


OUTPUTS_KEPT = Artifact(name=OUTPUTS, digest="0" * 64, size_bytes=1, media_type="application/zip")
STRAIGHT = (QUEUED, started(1), began("capture"), ended("capture"), began("tune"), ended("tune"), SUCCEEDED)
TAKEN_OVER = (QUEUED, started(1), began("capture"), started(2), began("capture"), ended("capture"), SUCCEEDED)


@pytest.mark.parametrize("told", [STRAIGHT, TAKEN_OVER], ids=["straight", "taken over"])
def test_a_history_without_gap_or_repeat_has_no_fault(told: tuple[Told, ...]) -> None:
    assert event_faults(events(*told), JobState.SUCCEEDED) == []


@pytest.mark.parametrize(
    "told",
    [
        pytest.param((*STRAIGHT, SUCCEEDED), id="two ends"),
        pytest.param(STRAIGHT[:-1], id="no end"),
        pytest.param((QUEUED, started(2), SUCCEEDED), id="an attempt is missing"),
        pytest.param((QUEUED, started(1), started(1), SUCCEEDED), id="an attempt is repeated"),
        pytest.param((QUEUED, started(1), began("tune"), began("tune"), SUCCEEDED), id="a stage is repeated"),
        pytest.param((QUEUED, started(1), ended("tune"), SUCCEEDED), id="a stage never began"),
    ],
)
def test_a_history_with_gap_or_repeat_has_a_fault(told: tuple[Told, ...]) -> None:
    assert event_faults(events(*told), JobState.SUCCEEDED) != []


def test_a_missing_number_is_a_fault() -> None:
    history = events(*STRAIGHT)
    del history[2]
    assert event_faults(history, JobState.SUCCEEDED) != []


def test_an_end_that_contradicts_the_row_is_a_fault() -> None:
    assert event_faults(events(*STRAIGHT), JobState.FAILED) != []


@pytest.mark.parametrize(
    ("state", "artifact", "faults"),
    [
        (JobState.SUCCEEDED, OUTPUTS_KEPT, []),
        (JobState.SUCCEEDED, None, ["has no outputs"]),
        (JobState.FAILED, None, ["ended failed: no problem"]),
        (JobState.CANCELLED, None, ["ended cancelled: no problem"]),
        (JobState.RUNNING, None, ["ended running: no problem"]),
    ],
)
def test_an_invocation_must_succeed_with_outputs(
    state: JobState, artifact: Artifact | None, faults: list[str]
) -> None:
    invocation = Invocation(
        id="an-invocation",
        compilation="a-compilation",
        state=state,
        inputs="0" * 64,
        inputs_bytes=1,
        runs=1,
        artifact=artifact,
        created_at=MOMENT,
    )
    assert invocation_faults(invocation) == faults


def measured(done: int) -> Told:
    return "progress", {"stage": "tune", "done": done}


@pytest.mark.parametrize(
    ("told", "lost"),
    [
        ((started(1), measured(0), measured(8), started(2), measured(8), measured(16)), 0),
        ((started(1), measured(0), measured(8), started(2), measured(16)), 0),
        ((started(1), measured(8), started(2), started(3), measured(5), measured(8)), 3),
        ((started(1), measured(8), measured(0)), 0),
    ],
)
def test_trials_that_a_later_attempt_lacks_are_lost(told: tuple[Told, ...], lost: int) -> None:
    assert repeated_trials(events(*told)) == lost
