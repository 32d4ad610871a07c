"""What happens between the stages: the supervisor is told, and the module is kept for whoever asked."""

from __future__ import annotations

from typing import Protocol

from bessemer.contract.stage import Stage
from worker.compiler.values import Translated, Tuned
from worker.snapshots.snapshots import Recorder


class Telling(Protocol):
    """Tells somebody else of the stages."""

    def stage_started(self, stage: Stage) -> None:
        """A stage begins."""
        ...

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """A stage has ended well, after ``seconds`` of wall clock."""
        ...


class StageObserver:
    """Observes the pipeline. Optimize gives its passes to the same recorder by itself."""

    def __init__(self, teller: Telling, recorder: Recorder) -> None:
        self._teller = teller
        self._recorder = recorder

    def stage_started(self, stage: Stage) -> None:
        """A stage begins."""
        self._teller.stage_started(stage)

    def stage_finished(self, stage: Stage, seconds: float, value: object) -> None:
        """A stage has ended well; ``value`` is what it returned."""
        self._teller.stage_finished(stage, seconds)
        if isinstance(value, Translated | Tuned):
            self._recorder.record(stage, stage.value, stage.value, seconds, value.module)
