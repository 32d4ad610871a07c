"""Finds and stores tuning records: the job asks its supervisor, which has the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from worker.protocol.answers import read_answer
from worker.protocol.messages import (
    Message,
    NearRecordsRequested,
    PlansMeasured,
    RecordsRequested,
    TrialsJudged,
    TrialsMeasured,
)
from worker.protocol.order import RecordsAnswer

Question = RecordsRequested | NearRecordsRequested | TrialsMeasured
Report = TrialsJudged | PlansMeasured


class Records(Protocol):
    """Finds and stores tuning records."""

    def ask(self, message: Question) -> RecordsAnswer:
        """Wait until records are found, or until trials are stored."""
        ...

    def report(self, message: Report) -> None:
        """Report which records won, or what was measured of plans."""
        ...


class AskedRecords:
    """Records that another process keeps.

    Args:
        send: sends a message.
        answers: a descriptor on which one line arrives for each question.
    """

    def __init__(self, send: Callable[[Message], None], answers: int) -> None:
        self._send = send
        self._answers = answers

    def ask(self, message: Question) -> RecordsAnswer:
        """See ``Records.ask``."""
        self._send(message)
        return RecordsAnswer.model_validate_json(read_answer(self._answers))

    def report(self, message: Report) -> None:
        """See ``Records.report``."""
        self._send(message)
