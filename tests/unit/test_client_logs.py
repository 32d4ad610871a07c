"""What is new at each look at a log of which only the end is shown."""

import pytest

from bessemer.client.logs import LogReader


@pytest.mark.parametrize(
    ("looks", "news"),
    [
        (["", "a\n", "a\nb\n", "a\nb\n"], ["", "a\n", "b\n", ""]),
        (["abcd", "cdef", "efgh"], ["abcd", "ef", "gh"]),
        (["abcd", "wxyz"], ["abcd", "wxyz"]),
        (["aaaa", "aaaab"], ["aaaa", "b"]),
        (["ab\ufffd", "ab\u00e9c", "\ufffdcd"], ["ab", "\u00e9c", "d"]),
    ],
    ids=["grows", "slides", "begins anew", "repeats itself", "is cut within a character"],
)
def test_each_look_gives_what_it_adds(looks: list[str], news: list[str]) -> None:
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
def test_the_whole_log_gives_what_followed_the_last_look(looks: list[str], whole: str, rest: str) -> None:
    reader = LogReader()
    for look in looks:
        reader.end(look)
    assert reader.whole(whole) == rest
