"""Interrupts: what the user is asked, and a cancel that fails."""

from pathlib import Path

import pytest

from bessemer.cli import waiting
from bessemer.cli.output import TerminatedError
from bessemer.cli.waiting import CANCEL, KEEP, cancel_on_interrupt, interrupted
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.errors import BessemerError, ServerFailedError, UnreachableError

FAILED = make_problem(ErrorCode.INTERNAL, "The app met a defect of its own.")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, TerminatedError])
@pytest.mark.parametrize(
    ("error", "says"),
    [
        (UnreachableError("http://build:8000 does not answer"), "http://build:8000 does not answer"),
        (ServerFailedError(FAILED), FAILED.detail),
    ],
    ids=["away", "defect"],
)
def test_a_failed_cancel_is_reported_and_the_interrupt_continues(
    capsys: pytest.CaptureFixture[str],
    interrupt: type[KeyboardInterrupt],
    error: BessemerError,
    says: str,
) -> None:
    def cancel() -> None:
        raise error

    with pytest.raises(KeyboardInterrupt) as raised, cancel_on_interrupt("job-1", cancel):
        raise interrupt
    assert raised.type is interrupt
    printed = capsys.readouterr().err
    assert printed.startswith("job-1 was not cancelled:\nerror: ")
    assert says in printed
    assert "asked to cancel" not in printed


@pytest.mark.parametrize(
    ("answer", "searches", "done", "goes_on"),
    [
        (CANCEL, True, ["cancelled"], False),
        (CANCEL, False, ["cancelled"], False),
        (KEEP, True, ["kept"], True),
        ("", True, [], False),
    ],
)
def test_an_interrupt_cancels_or_ends_the_search_or_lets_the_job_run(
    monkeypatch: pytest.MonkeyPatch, answer: str, searches: bool, done: list[str], goes_on: bool
) -> None:
    monkeypatch.setattr(waiting, "_wanted", lambda _searches: answer)
    did: list[str] = []
    keep = (lambda: did.append("kept")) if searches else None
    assert interrupted("job-1", lambda: did.append("cancelled"), KeyboardInterrupt(), keep) is goes_on
    assert did == done


@pytest.mark.parametrize(
    ("searches", "output", "words"),
    [
        (False, None, ["bessemer show --follow job-1", "bessemer cancel job-1"]),
        (True, None, ["bessemer cancel --keep-best job-1"]),
        (
            True,
            Path("my bundle"),
            ["my bundle was not filled", "bessemer download job-1 --output 'my bundle'"],
        ),
    ],
)
def test_a_command_that_lets_the_job_run_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], searches: bool, output: Path | None, words: list[str]
) -> None:
    keep = (lambda: None) if searches else None
    assert not interrupted("job-1", lambda: None, TerminatedError(), keep, output)
    printed = capsys.readouterr().err
    assert [word for word in words if word not in printed] == []
    assert ("--keep-best" in printed, "bessemer download" in printed) == (searches, output is not None)


def test_a_terminated_command_asks_nothing_and_lets_the_job_run() -> None:
    did: list[str] = []
    assert not interrupted("job-1", lambda: did.append("cancelled"), TerminatedError(), None)
    assert not did
