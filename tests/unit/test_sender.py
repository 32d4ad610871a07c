import os
import time

import pytest

from bessemer.contract.problem import ErrorCode, SourcePlace
from bessemer.contract.stage import Stage
from worker.errors import JobError
from worker.job.child import failed_by
from worker.protocol.messages import MAX_LINE_BYTES, MESSAGES, Failed, Message, ProgressMade, StageStarted
from worker.protocol.sender import Sender, encode


def messages_from(reader: int) -> list[Message]:
    os.set_blocking(reader, False)
    return [MESSAGES.validate_json(line) for line in os.read(reader, 1 << 16).splitlines()]


def test_progress_belongs_to_the_running_stage_and_is_throttled() -> None:
    reader, writer = os.pipe()
    sender = Sender(writer, time.monotonic())
    sender.stage_started(Stage.TUNE)
    for done in range(1, 65):
        sender.progress(Stage.TUNE, done, 64, "trial")
    messages = messages_from(reader)
    os.close(reader)
    os.close(writer)
    progress = [message for message in messages if isinstance(message, ProgressMade)]
    assert messages[0] == StageStarted(stage=Stage.TUNE)
    assert progress[-1] == ProgressMade(stage=Stage.TUNE, done=64, total=64, detail="trial")
    assert len(progress) < 64


def test_a_long_problem_is_shortened_to_one_line() -> None:
    places = tuple(SourcePlace(operator="aten.x", file="f" * 1000, line=line) for line in range(5000))
    line = encode(Failed(code=ErrorCode.OPERATOR_UNSUPPORTED, detail="x" * MAX_LINE_BYTES, places=places))
    assert len(line) <= MAX_LINE_BYTES
    shortened = MESSAGES.validate_json(line)
    assert isinstance(shortened, Failed)
    assert shortened.code is ErrorCode.OPERATOR_UNSUPPORTED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (JobError(ErrorCode.CAPTURE_FAILED, "no"), ErrorCode.CAPTURE_FAILED),
        (MemoryError(), ErrorCode.LIMIT_MEMORY),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
            ErrorCode.LIMIT_MEMORY,
        ),
        (RuntimeError("something else"), ErrorCode.CHILD_CRASHED),
        (SystemExit(3), ErrorCode.CHILD_CRASHED),
    ],
)
def test_every_way_to_end_a_job_has_a_stable_code(error: BaseException, code: ErrorCode) -> None:
    assert failed_by(error, None).code is code


def test_invalid_unicode_reaches_the_user_readable() -> None:
    place = SourcePlace(operator="aten.\ud800", file="model.py", line=3)
    message = MESSAGES.validate_json(
        encode(Failed(code=ErrorCode.MODEL_RAISED, detail="a\udfffb", places=(place,)))
    )
    assert isinstance(message, Failed)
    assert (message.detail, message.places[0].operator) == ("a?b", "aten.?")
