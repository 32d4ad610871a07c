"""Waiting for a queued job while the server cannot be reached."""

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bessemer.cli import waiting
from bessemer.client import outages
from bessemer.client.outages import Outage
from bessemer.contract.job import JobState
from bessemer.errors import UnreachableError


class Queued:
    """A job that leaves the queue after some refreshes, of which the first ones fail."""

    def __init__(self, outages: int) -> None:
        self.state, self.document, self.refreshes, self._outages = JobState.QUEUED, self, 0, outages
        self.queue = None

    def refresh(self) -> None:
        self.refreshes += 1
        if self.refreshes <= self._outages:
            raise UnreachableError("connection refused")
        self.state = JobState.RUNNING


def wait(job: Queued) -> None:
    waiting._wait_in_queue(cast(Any, job), cast(Any, SimpleNamespace()), None)


def test_a_queued_job_is_waited_for_through_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    job = Queued(outages=5)
    wait(job)
    assert job.refreshes == 6


def test_an_outage_that_lasts_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(outages, "GIVE_UP_SECONDS", -1.0)
    with pytest.raises(UnreachableError):
        wait(Queued(outages=5))


def test_a_permanent_error_is_raised_at_once() -> None:
    with pytest.raises(ValueError, match="no such job"), Outage().tolerated():
        raise ValueError("no such job")
