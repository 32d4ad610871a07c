"""The supervisor turns all bytes from a job into messages that it can store, or ends the job."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import edited
from mutations import in_pieces, mutated

from worker.errors import MisbehavedError
from worker.protocol.conversation import Conversation
from worker.protocol.messages import MAX_LINE_BYTES, MESSAGES, Message
from worker.protocol.sender import encode
from worker.supervisor.running_job import JobLink, MessagePipe, RunningJob

pytestmark = pytest.mark.fuzz

LATENCY = {
    "runs": 300,
    "min_ms": 1.0,
    "p50_ms": 1.0,
    "p90_ms": 1.0,
    "p99_ms": 2.0,
    "mean_ms": 1.0,
    "stddev_ms": 0,
}
SPEC = {"name": "x", "shape": [1, 784], "dtype": "float32"}
BASELINE = {
    "name": "torch-eager",
    "threads": 2,
    "latency": LATENCY,
    "ratio": 0.5,
    "ratio_p10": 0.4,
    "ratio_p90": 1,
}
FIGURES = {
    "latency": LATENCY,
    "baselines": [BASELINE],
    "library_bytes": 1,
    "peak_memory_bytes": 1,
    "max_absolute_error": 0.0,
}
TARGET = {"name": "host", "kind": "llvm", "mcpu": "znver4", "triple": "t", "features": ["+avx"], "cores": 2}
PLACE = {"operator": "aten.sort", "module_path": "layers.0", "file": "model.py", "line": 12}
DOCUMENTS: list[dict[str, Any]] = [
    {"kind": "confined", "sandbox": {"mode": "required", "layers": []}, "seconds": 0.1},
    {"kind": "stage-started", "stage": "capture"},
    {"kind": "progress", "stage": "capture", "done": 1, "total": 2, "detail": "matmul"},
    {"kind": "stage-finished", "stage": "capture", "seconds": 1.0},
    {"kind": "turn-requested"},
    {"kind": "turn-ended"},
    {"kind": "failed", "code": "model-raised", "detail": "no", "stage": "capture", "places": [PLACE]},
    {
        "kind": "inspected",
        "inspection": {"format": "pt2", "signature": {"input_names": ["x"], "parameters": 1}},
    },
    {"kind": "compiled", "target": TARGET, "verified": True, "figures": FIGURES, "files": ["bundle.tar.zst"]},
    {"kind": "checked", "check": {"latency": LATENCY, "max_absolute_error": 0.0}},
    {"kind": "invoked", "threads": 2, "latency": LATENCY, "outputs": [SPEC]},
]
LINES = edited(st.sampled_from(DOCUMENTS)).map(lambda document: json.dumps(document).encode() + b"\n")
STREAMS = mutated(st.lists(LINES, max_size=6).map(b"".join), b"\n")
CUTS = st.lists(st.integers(0, 4000), max_size=4)


def heard(stream: bytes, cuts: list[int]) -> tuple[list[Message], str | None]:
    """The messages of a job, and how it misbehaved if it did."""

    async def hear() -> str | None:
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        for piece in in_pieces(stream, cuts):
            reader.feed_data(piece)
        reader.feed_eof()
        link = JobLink(MessagePipe(reader, cast(Any, None)), cast(Any, None))
        job = RunningJob(cast(Any, None), asyncio.Future(), Path(), link, cast(Any, None), 0)
        conversation = Conversation()
        try:
            async for message in job.messages():
                conversation = conversation.heard(message, 1.0)
                messages.append(message)
        except MisbehavedError as error:
            return error.detail
        return None

    messages: list[Message] = []
    return messages, asyncio.run(hear())


@given(STREAMS | st.binary(), CUTS)
def test_a_stream_is_the_same_messages_or_the_same_misbehavior_in_any_pieces(
    stream: bytes, cuts: list[int]
) -> None:
    assert heard(stream, cuts) == heard(stream, [])


@given(LINES)
def test_a_message_that_is_read_can_be_stored_and_sent_again(line: bytes) -> None:
    try:
        message = MESSAGES.validate_json(line)
    except ValueError:
        return
    json.dumps(message.model_dump(mode="json"), allow_nan=False).encode()
    assert MESSAGES.validate_json(encode(message)) == message
