"""New text at each poll of a log whose tail alone is available."""

from collections.abc import Iterable

import pytest

from app.openapi.document import COMPILATION
from bessemer.client.events import LogFollower, LogReader
from bessemer.client.steps import Flow, Reply
from bessemer.contract.job import LOG, Artifact, JobState

JOB = COMPILATION.model_copy(update={"state": JobState.RUNNING, "artifacts": ()})
ENDED = JOB.model_copy(
    update={
        "state": JobState.SUCCEEDED,
        "artifacts": (Artifact(name=LOG, digest="0" * 64, size_bytes=8, media_type="text/plain"),),
    }
)


@pytest.mark.parametrize(
    ("looks", "news"),
    [
        (["", "a\n", "a\nb\n", "a\nb\n"], ["", "a\n", "b\n", ""]),
        (["abcd", "cdef", "efgh"], ["abcd", "ef", "gh"]),
        (["abcd", "wxyz"], ["abcd", "wxyz"]),
        (["aaaa", "aaaab"], ["aaaa", "b"]),
        (["ab\ufffd", "ab\u00e9c", "\ufffdcd"], ["ab", "\u00e9c", "d"]),
    ],
    ids=["grows", "slides", "restarts", "repeats itself", "is cut within a character"],
)
def test_each_poll_returns_the_new_text(looks: list[str], news: list[str]) -> None:
    reader = LogReader()
    assert [reader.end(look) for look in looks] == news


@pytest.mark.parametrize(
    ("looks", "whole", "rest"),
    [
        ([], "abc", "abc"),
        (["abcd", "cdef"], "abcdefgh", "gh"),
        (["aaaa"], "aaaaaaaa", "aaaa"),
        (["abcd", "ijkl"], "abcdefghijklmn", "mn"),
        (["first attempt"], "second", "second"),
    ],
    ids=["none before", "slid", "repeats itself", "missed some", "another"],
)
def test_the_whole_log_returns_the_text_after_the_last_poll(looks: list[str], whole: str, rest: str) -> None:
    reader = LogReader()
    for look in looks:
        reader.end(look)
    assert reader.whole(whole) == rest


def performed(flow: Flow[str], answers: Iterable[str]) -> str:
    """The result of an operation whose calls get these responses."""
    next(flow)
    with pytest.raises(StopIteration) as ended:
        for answer in answers:
            flow.send(Reply(200, answer.encode()))
    return str(ended.value.value)


def test_a_job_that_ends_during_a_poll_repeats_nothing() -> None:
    follower, running, ended = LogFollower(JOB.id), JOB.model_dump_json(), ENDED.model_dump_json()
    assert performed(follower.poll(), [running, "cd", running]) == "cd"
    assert performed(follower.poll(), [running, "abcdefgh", ended]) == ""
    assert not follower.done
    assert performed(follower.poll(), [ended, "abcdefgh"]) == "efgh"
    assert follower.done
