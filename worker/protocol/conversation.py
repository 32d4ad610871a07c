"""The order of a job's messages: what a job may say after what it has said."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bessemer.contract.stage import Stage
from worker.errors import MisbehavedError
from worker.protocol.messages import (
    Amended,
    BundleRead,
    CandidatesBuilt,
    Checked,
    Compiled,
    Confined,
    EarlyBundleMade,
    Failed,
    Inspected,
    Invoked,
    Message,
    NearRecordsRequested,
    ObjectCompiled,
    ObjectsRequested,
    PlansMeasured,
    ProgressMade,
    RecordsRequested,
    StageFinished,
    StageStarted,
    TrialsJudged,
    TrialsMeasured,
    TurnEnded,
    TurnRequested,
)

FIRST_MESSAGES = 2_000
MESSAGES_PER_SECOND = 50
"""A job sends progress ten times a second, and two messages for each stage and each turn."""

Question = (
    CandidatesBuilt
    | EarlyBundleMade
    | RecordsRequested
    | NearRecordsRequested
    | TrialsMeasured
    | TrialsJudged
    | PlansMeasured
    | ObjectsRequested
)
"""What a job asks for or reports, beside its turns, while a stage runs."""
LastMessage = Compiled | Checked | Amended | Inspected | Invoked | ObjectCompiled | Failed


@dataclass(frozen=True)
class Conversation:
    """What a job has said, as far as it limits what may follow.

    Attributes:
        count: how many messages it has sent.
        confined: whether it has reported its confinement.
        stage: the stage that started last.
        stage_runs: whether that stage has not finished.
        turn: whether it has requested a turn and not ended it.
        bundle_read: whether it has read all files of a bundle.
        last: its last message; nothing may follow.
    """

    count: int = 0
    confined: bool = False
    stage: Stage | None = None
    stage_runs: bool = False
    turn: bool = False
    bundle_read: bool = False
    last: LastMessage | None = None

    def heard(self, message: Message, seconds: float) -> Conversation:
        """The conversation with one more message.

        Args:
            message: the message.
            seconds: how long the job has run.

        Raises:
            MisbehavedError: the message may not follow, or the job has sent too many.
        """
        if self.last is not None:
            raise MisbehavedError(f"the job sent '{message.kind}' after its last message")
        if self.count >= FIRST_MESSAGES + MESSAGES_PER_SECOND * seconds:
            raise MisbehavedError(f"the job sent {self.count} messages within {seconds:.1f} s")
        if self.confined == isinstance(message, Confined):
            raise MisbehavedError("the job must report its confinement once, in its first message")
        return replace(self._after(message), count=self.count + 1)

    def _after(self, message: Message) -> Conversation:
        match message:
            case Confined():
                return replace(self, confined=True)
            case StageStarted(stage=stage) if not self.stage_runs and self._is_later(stage):
                return replace(self, stage=stage, stage_runs=True)
            case StageFinished(stage=stage) if self.stage_runs and stage is self.stage:
                return replace(self, stage_runs=False)
            case ProgressMade(stage=stage) if self.stage_runs and stage is self.stage:
                return self
            case TurnRequested() if not self.turn:
                return replace(self, turn=True)
            case _ if isinstance(message, Question) and self.stage_runs and not self.turn:
                return self
            case TurnEnded() if self.turn:
                return replace(self, turn=False)
            case BundleRead(last=last) if not (self.bundle_read or self.turn):
                return replace(self, bundle_read=last)
            case _ if isinstance(message, LastMessage):
                return replace(self, last=message)
        raise MisbehavedError(f"the job sent '{message.kind}' out of order")

    def _is_later(self, stage: Stage) -> bool:
        return self.stage is None or (stage is not self.stage and stage.includes(self.stage))
