"""Sends the messages of the job child to the supervisor."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from bessemer.contract.report import ModelEstimate, StageTime
from bessemer.contract.stage import Stage
from worker.protocol.messages import (
    MAX_LINE_BYTES,
    Failed,
    Message,
    ProgressMade,
    StageFinished,
    StageStarted,
)
from worker.protocol.observer import JobObserver

PROGRESS_INTERVAL_SECONDS = 0.1
MAX_PLACES = 100
MAX_TEXT_CHARACTERS = 4000


class JobPipes(NamedTuple):
    """A job's descriptors of its FIFOs.

    Attributes:
        messages: where the job writes its messages.
        grants: where it reads one byte for each turn that the supervisor grants.
    """

    messages: int
    grants: int


class Sender(JobObserver):
    """Sends messages over the FIFO, among them what it observes of the pipeline."""

    def __init__(self, descriptor: int, started: float) -> None:
        self.descriptor = descriptor
        self.stage: Stage | None = None
        self.finished: tuple[StageTime, ...] = ()
        self._started = started
        self._last_progress = 0.0

    def elapsed_seconds(self) -> float:
        """Seconds since the order for the job arrived."""
        return time.monotonic() - self._started

    def send(self, message: Message) -> None:
        """Send one message; a failure that is too long is shortened."""
        line = encode(message)
        while line:
            line = line[os.write(self.descriptor, line) :]

    def stage_started(self, stage: Stage) -> None:
        """Send it, and remember the stage."""
        self.stage = stage
        self.send(StageStarted(stage=stage))

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """Send it, and remember the time."""
        self.finished = (*self.finished, StageTime(stage=stage, seconds=seconds))
        self.send(StageFinished(stage=stage, seconds=seconds))

    def progress(
        self, stage: Stage, done: int, total: int, detail: str, estimate: ModelEstimate | None = None
    ) -> None:
        """Send it at most ten times a second, and when it is complete."""
        now = time.monotonic()
        due = now - self._last_progress >= PROGRESS_INTERVAL_SECONDS or done >= total
        if not due:
            return
        self._last_progress = now
        self.send(ProgressMade(stage=stage, done=done, total=total, detail=detail[:400], estimate=estimate))


def encode(message: Message) -> bytes:
    """One line of at most ``MAX_LINE_BYTES``.

    Raises:
        ValueError: the message is too long, and is not a failure that could be shortened.
    """
    line = message.model_dump_json().encode() + b"\n"
    if len(line) <= MAX_LINE_BYTES:
        return line
    if isinstance(message, Failed):
        return _shortened(message).model_dump_json().encode() + b"\n"
    raise ValueError(f"a message of {len(line)} bytes is longer than {MAX_LINE_BYTES}")


def _shortened(message: Failed) -> Failed:
    places = tuple(
        place.model_copy(
            update={"file": (place.file or "")[-200:], "module_path": (place.module_path or "")[-200:]}
        )
        for place in message.places[:MAX_PLACES]
    )
    return message.model_copy(update={"detail": message.detail[:MAX_TEXT_CHARACTERS], "places": places})
