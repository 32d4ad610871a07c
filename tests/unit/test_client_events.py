"""Reading and following a stream of events, without a server."""

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bessemer.client.events import Follower, reconnect_delay_seconds
from bessemer.client.outages import GIVE_UP_SECONDS, Outage
from bessemer.client.steps import Call, Flow, Reply, Sleep
from bessemer.contract.base import now
from bessemer.contract.job import Compilation, Event, EventType, JobState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.errors import NotFoundError, UnreachableError, WaitTimeoutError

EVENTS = [
    Event(seq=1, type=EventType.QUEUED, at=now()),
    Event(seq=2, type=EventType.STARTED, at=now(), data={"worker": "wörker", "attempt": 1}),
    Event(seq=3, type=EventType.SUCCEEDED, at=now()),
]
STREAM = b": hello\r\n\r\n" + b"".join(
    f"id: {event.seq}\nevent: {event.type}\ndata: {event.model_dump_json()}\n\n".encode() for event in EVENTS
)


def document(state: JobState) -> Reply:
    request = CompilationRequest.model_validate({"model": "0" * 64, "target": "host"})
    compilation = Compilation(id="job-0001", state=state, request=request, created_at=now())
    return Reply(200, compilation.model_dump_json().encode())


def drive(flow: Flow[Any], *outcomes: Reply | httpx.TransportError) -> list[float]:
    """Run a flow whose calls have these outcomes and return its pauses."""
    answers, pauses = iter(outcomes), []
    try:
        step = next(flow)
        while True:
            if isinstance(step, Sleep):
                pauses.append(step.seconds)
                step = flow.send(None)
            else:
                assert isinstance(step, Call)
                step = flow.send(next(answers))
    except StopIteration:
        return pauses


def read(follower: Follower, *chunks: bytes) -> Iterator[Event]:
    for message in follower.read(iter(chunks)).iter_sse():
        yield from follower.take(message)


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_read_from_pieces_of_any_size(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(edges)]
    assert list(read(Follower("job-0001"), *pieces)) == EVENTS


def test_a_stream_of_another_server_is_refused() -> None:
    with pytest.raises(UnreachableError, match="schema of Event"):
        list(read(Follower("job-0001"), b"data: {}\n\n"))


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(UnreachableError, match="a line of more than 4194304 bytes"):
        list(read(Follower("job-0001"), *(bytes(1 << 16) for _ in range(100))))


def test_many_short_lines_do_not_count_as_a_long_one() -> None:
    comments = [b": " + bytes(1 << 16) + b"\r\n"] * 100
    assert list(read(Follower("job-0001"), *comments, STREAM)) == EVENTS


def test_comments_after_an_event_are_not_events() -> None:
    pings = b": ping\n\n" * 3
    assert list(read(Follower("job-0001"), pings, STREAM, pings)) == EVENTS


def test_a_broken_stream_goes_on_after_the_last_event() -> None:
    follower = Follower("job-0001")
    assert "Last-Event-ID" not in follower.call().headers
    half = STREAM.index(b"id: 3") + 8
    assert [event.seq for event in read(follower, STREAM[:half])] == [1, 2]
    assert follower.call().headers["Last-Event-ID"] == "2"
    assert [event.seq for event in read(follower, STREAM)] == [3]
    assert follower.done


def test_a_job_that_ended_without_a_final_event_is_asked_twice() -> None:
    follower = Follower("job-0001")
    drive(follower.pause(), document(JobState.SUCCEEDED))
    assert not follower.done
    drive(follower.pause(), document(JobState.SUCCEEDED))
    assert follower.done


def test_a_lost_server_is_retried_with_growing_pauses() -> None:
    follower = Follower("job-0001")
    lost = [httpx.ConnectError("refused")] * 3
    first = drive(follower.pause(), *lost)[-1]
    second = drive(follower.pause(), *lost)[-1]
    assert second > first
    follower._outage = Outage(time.monotonic() - GIVE_UP_SECONDS - 1)
    with pytest.raises(UnreachableError):
        drive(follower.pause(), *lost)


def test_a_permanent_refusal_is_raised_and_a_transient_one_is_retried() -> None:
    follower = Follower("job-0001")
    follower.refuse(503, b"")
    gone = make_problem(ErrorCode.NOT_FOUND, "There is no job.")
    with pytest.raises(NotFoundError):
        follower.refuse(404, gone.model_dump_json().encode())


def test_a_past_deadline_ends_the_wait() -> None:
    follower = Follower("job-0001", deadline=time.monotonic())
    with pytest.raises(WaitTimeoutError):
        list(read(follower, b": ping\n\n"))
    with pytest.raises(WaitTimeoutError):
        drive(follower.pause())


def test_pauses_grow_to_a_limit() -> None:
    delays = [reconnect_delay_seconds(losses) for losses in range(1, 100)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.1, 5.0)
