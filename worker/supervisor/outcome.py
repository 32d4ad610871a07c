"""How a job ended: a pure policy over what is known once its processes are gone."""

import signal
from dataclasses import dataclass

from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from worker.errors import signal_name
from worker.protocol.messages import Compiled, Failed, Inspected, Invoked, Message, ProgressMade
from worker.supervisor.crash import crash_site
from worker.supervisor.watch import Verdict

Result = Compiled | Inspected | Invoked

SIGNAL_CODES: dict[int, ErrorCode] = {
    signal.SIGXCPU: ErrorCode.LIMIT_CPU,
    signal.SIGXFSZ: ErrorCode.LIMIT_DISK,
    signal.SIGKILL: ErrorCode.CHILD_KILLED,
}
"""Signals by which the kernel says that a limit was reached, and that of whoever kills from outside."""

OUT_OF_TIME = frozenset({ErrorCode.TIMEOUT, ErrorCode.LIMIT_WALL_CLOCK})

LOG_TAIL_CHARACTERS = 400


@dataclass(frozen=True)
class Ending:
    """What is known of a job whose processes are gone.

    Attributes:
        last: the child's last message, where it sent one.
        verdict: why the watch killed it (a limit, a cancellation), with the figure.
        violation: what the child said that is no message.
        status: the exit status of the child.
        signal: the signal that ended the child; 0 where it left by itself.
        stage: the stage that ran last.
        progress: how far that stage was, where it said so.
        log: what the job printed.
    """

    last: Result | Failed | None
    verdict: Verdict | None
    violation: str | None
    status: int
    signal: int
    stage: Stage | None
    log: str
    progress: ProgressMade | None = None


def conclude(ending: Ending) -> Result | Problem:
    """The result, or the problem that the job's user is told.

    What the supervisor knows for itself comes before what the child said.
    """
    if ending.verdict is not None:
        return _problem(ending, ending.verdict.code, _describe_verdict(ending.verdict, ending.progress))
    if ending.violation is not None:
        return _problem(ending, ErrorCode.CHILD_MISBEHAVED, ending.violation)
    if isinstance(ending.last, Failed):
        said = ending.last
        return make_problem(said.code, said.detail, stage=said.stage, places=said.places)
    if ending.signal or ending.status or ending.last is None:
        return _problem(ending, _crash_code(ending.signal), _describe_crash(ending))
    return ending.last


def refuse_early_end(result: Result | Problem, request: CompilationRequest) -> Result | Problem:
    """The result, or a problem where a compilation says that it ended elsewhere than it was to."""
    if not isinstance(result, Compiled):
        return result
    if (result.stopped_after or Stage.PACKAGE) is (request.stop_after or Stage.PACKAGE):
        return result
    detail = "it says that it stopped elsewhere than the request asks"
    return make_problem(ErrorCode.CHILD_MISBEHAVED, detail)


def as_problem(result: Message | Problem) -> Problem:
    """The problem; where it is a result, it is not that of the job that was ordered."""
    if isinstance(result, Problem):
        return result
    return make_problem(ErrorCode.CHILD_MISBEHAVED, f"the job ended with the message '{result.kind}'")


def _problem(ending: Ending, code: ErrorCode, detail: str) -> Problem:
    return make_problem(code, detail, stage=ending.stage)


def _describe_verdict(verdict: Verdict, progress: ProgressMade | None) -> str:
    if verdict.code not in OUT_OF_TIME or progress is None:
        return verdict.detail
    count = f"{progress.done} of {progress.total}" if progress.total else f"{progress.done}"
    at = f": {progress.detail}" if progress.detail else ""
    return f"{verdict.detail}; {progress.stage.value} was at {count}{at}"


def _crash_code(number: int) -> ErrorCode:
    return SIGNAL_CODES.get(number, ErrorCode.CHILD_CRASHED)


def _describe_crash(ending: Ending) -> str:
    how = signal_name(ending.signal) if ending.signal else f"exit status {ending.status}"
    site = crash_site(ending.log) if ending.signal else ""
    tail = "" if site else ending.log.strip()[-LOG_TAIL_CHARACTERS:]
    told = (site, f"its log ends: {tail}" if tail else "")
    return "; ".join(filter(None, (f"the job's process ended with {how}", *told)))
