"""An interrupt whose cancel fails."""

import pytest

from bessemer.cli.output import TerminatedError
from bessemer.cli.waiting import cancel_on_interrupt
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
