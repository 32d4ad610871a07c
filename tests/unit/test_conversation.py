"""The order of a job's messages: what may follow what, and how many there may be."""

from functools import reduce

import pytest

from bessemer.contract.cost_model import MeasuredFunction
from bessemer.contract.job import Figures
from bessemer.contract.problem import ErrorCode
from bessemer.contract.records import SearchScope
from bessemer.contract.report import Latency
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.stage import Stage
from worker.errors import MisbehavedError
from worker.protocol.conversation import FIRST_MESSAGES, MESSAGES_PER_SECOND, Conversation
from worker.protocol.messages import (
    BundleRead,
    CandidatesBuilt,
    Confined,
    EarlyBundleMade,
    Failed,
    Message,
    NearRecordsRequested,
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

CONFINED = Confined(sandbox=SandboxStatus(mode=SandboxMode.REQUIRED, layers=()), seconds=0.01)
FAILED = Failed(code=ErrorCode.MODEL_RAISED, detail="no")
CAPTURE, TUNE = StageStarted(stage=Stage.CAPTURE), StageStarted(stage=Stage.TUNE)
CAPTURED = StageFinished(stage=Stage.CAPTURE, seconds=1.0)
PART_READ, ALL_READ = BundleRead(files=(), last=False), BundleRead(files=(), last=True)
CANDIDATES = CandidatesBuilt(
    platform="aarch64", count=1, rounds=1, repeat=1, repeat_seconds=1, timeout_seconds=1
)
FIGURES = Figures(
    latency=Latency(runs=9, min_ms=1, p50_ms=1, mean_ms=1, stddev_ms=0),
    baselines=(),
    library_bytes=1,
    peak_memory_bytes=1,
    max_absolute_error=0,
)
EARLY = EarlyBundleMade(figures=FIGURES)
SCOPE = SearchScope(target="x86_64 znver4", threads=2, compiler="tvm", tvm_target="{}")
ASKED = RecordsRequested(scope=SCOPE, functions=("1",), applies=False)
NEAR = NearRecordsRequested(functions=())
TOLD = TrialsMeasured(first=0, trials=(), elapsed_seconds=1.0)
JUDGED = TrialsJudged(judged=())
PLANS = PlansMeasured(
    function=MeasuredFunction(
        source="1",
        family="matmul",
        kind="x86_64 256 parallel",
        features=({"rank": 0.0}, {"rank": 1.0}),
        places=(0, 1),
        seconds=(1.0, 2.0),
    )
)
PROGRESS = ProgressMade(stage=Stage.CAPTURE, done=1, total=2)


def heard(*messages: Message, seconds: float = 1.0) -> Conversation:
    return reduce(lambda said, message: said.heard(message, seconds), messages, Conversation())


@pytest.mark.parametrize(
    "messages",
    [
        (CONFINED,),
        (CONFINED, FAILED),
        (CONFINED, CAPTURE, PROGRESS, PROGRESS, CAPTURED, TUNE, FAILED),
        (CONFINED, CAPTURE, FAILED),
        (CONFINED, CAPTURE, TurnRequested(), TurnEnded(), TurnRequested(), TurnEnded(), CAPTURED),
        (CONFINED, CAPTURE, TurnRequested(), FAILED),
        (CONFINED, TUNE, CANDIDATES, CANDIDATES, FAILED),
        (CONFINED, TUNE, EARLY, EARLY, FAILED),
        (CONFINED, TUNE, ASKED, NEAR, TOLD, TOLD, PLANS, JUDGED, FAILED),
        (CONFINED, PART_READ, PART_READ, ALL_READ, TurnRequested(), TurnEnded(), FAILED),
    ],
)
def test_a_job_reports_its_stages_in_order(messages: tuple[Message, ...]) -> None:
    assert heard(*messages).count == len(messages)


@pytest.mark.parametrize(
    "messages",
    [
        (CAPTURE,),
        (FAILED,),
        (CONFINED, ALL_READ, ALL_READ),
        (CONFINED, ALL_READ, PART_READ),
        (CONFINED, TurnRequested(), ALL_READ),
        (CONFINED, CANDIDATES),
        (CONFINED, EARLY),
        (CONFINED, TUNE, TurnRequested(), EARLY),
        (CONFINED, ASKED),
        (CONFINED, NEAR),
        (CONFINED, JUDGED),
        (CONFINED, PLANS),
        (CONFINED, TUNE, TurnRequested(), TOLD),
        (CONFINED, TUNE, TurnRequested(), ASKED),
        (CONFINED, TUNE, TurnRequested(), CANDIDATES),
        (CONFINED, CONFINED),
        (CONFINED, FAILED, FAILED),
        (CONFINED, FAILED, CAPTURE),
        (CONFINED, CAPTURE, CAPTURE),
        (CONFINED, CAPTURE, TUNE),
        (CONFINED, CAPTURE, CAPTURED, CAPTURE),
        (CONFINED, CAPTURE, CAPTURED, CAPTURED),
        (CONFINED, TUNE, StageFinished(stage=Stage.TUNE, seconds=1.0), CAPTURE),
        (CONFINED, CAPTURED),
        (CONFINED, PROGRESS),
        (CONFINED, CAPTURE, CAPTURED, PROGRESS),
        (CONFINED, TurnEnded()),
        (CONFINED, TurnRequested(), TurnRequested()),
    ],
)
def test_a_message_out_of_order_is_misbehavior(messages: tuple[Message, ...]) -> None:
    before = heard(*messages[:-1])
    with pytest.raises(MisbehavedError):
        before.heard(messages[-1], 1.0)


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_a_job_sends_only_as_many_messages_as_its_time_allows(seconds: float) -> None:
    most = FIRST_MESSAGES + int(MESSAGES_PER_SECOND * seconds)
    messages = (CONFINED, CAPTURE, *[PROGRESS] * (most - 2))
    full = heard(*messages, seconds=seconds)
    with pytest.raises(MisbehavedError, match=f"{most} messages"):
        full.heard(PROGRESS, seconds)
