"""How a job ended and what to advise: pure policies over what is known once its processes are gone."""

import re
import signal
from dataclasses import dataclass

from bessemer.contract.job import BundleCheck, Figures, Progress
from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from worker.errors import signal_name, without_server_details
from worker.protocol.messages import (
    Amended,
    Checked,
    Compiled,
    Failed,
    Inspected,
    Invoked,
    Message,
    ObjectCompiled,
)
from worker.supervisor.watch import Termination

Result = Compiled | Checked | Amended | Inspected | Invoked | ObjectCompiled

SIGNAL_CODES: dict[int, ErrorCode] = {
    signal.SIGXCPU: ErrorCode.LIMIT_CPU,
    signal.SIGXFSZ: ErrorCode.LIMIT_DISK,
    signal.SIGKILL: ErrorCode.CHILD_KILLED,
}
"""The signals that the kernel sends at a limit, and SIGKILL, which another process sent."""

OUT_OF_TIME = frozenset({ErrorCode.TIMEOUT, ErrorCode.LIMIT_WALL_CLOCK})

LOG_TAIL_CHARACTERS = 400
MOST_SLOWER = 2.0


@dataclass(frozen=True)
class JobOutcome:
    """What is known of a job whose processes are gone.

    Attributes:
        last: the child's last message, if it sent one.
        termination: why the watch killed it (a limit, a cancellation), with the figure.
        violation: how the child violated the protocol.
        status: the exit status of the child.
        signal: the signal that ended the child; 0 if it exited.
        stage: the stage that ran last.
        progress: the last progress of that stage, if it reported any.
        log: what the job printed.
    """

    last: Result | Failed | None
    termination: Termination | None
    violation: str | None
    status: int
    signal: int
    stage: Stage | None
    log: str
    progress: Progress | None = None


def conclude(outcome: JobOutcome) -> Result | Problem:
    """The result of a job, or its problem. What the supervisor itself knows overrides the child's message."""
    if outcome.termination is not None:
        detail = _describe_termination(outcome.termination, outcome.progress)
        return _problem(outcome, outcome.termination.code, detail)
    if outcome.violation is not None:
        return _problem(outcome, ErrorCode.CHILD_MISBEHAVED, outcome.violation)
    if isinstance(outcome.last, Failed):
        failed = outcome.last
        return make_problem(failed.code, failed.detail, stage=failed.stage, places=failed.places)
    if outcome.signal or outcome.status or outcome.last is None:
        return _problem(outcome, _crash_code(outcome.signal), _describe_crash(outcome))
    return outcome.last


def refuse_early_end(result: Result | Problem, request: CompilationRequest) -> Result | Problem:
    """The result, or a problem if a compilation stopped after another stage than the request asks for."""
    if not isinstance(result, Compiled):
        return result
    if (result.stopped_after or Stage.PACKAGE) is not (request.stop_after or Stage.PACKAGE):
        detail = "the job stopped after another stage than the request asks for"
    elif result.verified is False and request.is_verified:
        detail = "the job skipped the verification that the request asks for"
    else:
        return result
    return make_problem(ErrorCode.CHILD_MISBEHAVED, detail)


def with_check(compiled: Compiled, check: BundleCheck | None) -> Compiled:
    """A compilation with the check of its bundle, if this machine can run it.

    Its figures are unsteady if the library was not even half as fast in the fresh process.
    """
    if compiled.figures is None:
        return compiled
    return compiled.model_copy(update={"figures": with_latency(compiled.figures, check)})


def with_latency(figures: Figures, check: BundleCheck | None) -> Figures:
    """Figures with the check of their bundle; see ``with_check``."""
    if check is None or check.latency is None:
        return figures
    claimed_ms, fastest_ms = figures.latency.p50_ms, check.latency.min_ms
    unsteady = figures.unsteady
    if fastest_ms > MOST_SLOWER * claimed_ms:
        unsteady = f"a fresh process took {fastest_ms:.3g} ms, the benchmark {claimed_ms:.3g} ms"
    return figures.model_copy(update={"check": check, "unsteady": unsteady})


def as_problem(result: Message | Problem) -> Problem:
    """The problem; a result at this point belongs to another kind of job than was ordered."""
    if isinstance(result, Problem):
        return result
    return make_problem(ErrorCode.CHILD_MISBEHAVED, f"the job ended with the message '{result.kind}'")


def _problem(outcome: JobOutcome, code: ErrorCode, detail: str) -> Problem:
    return make_problem(code, detail, stage=outcome.stage)


def _describe_termination(termination: Termination, progress: Progress | None) -> str:
    if termination.code not in OUT_OF_TIME or progress is None:
        return termination.detail
    count = f"{progress.done} of {progress.total}" if progress.total else f"{progress.done}"
    at = f": {progress.detail}" if progress.detail else ""
    return f"{termination.detail}; {progress.stage.value} was at {count}{at}"


def _crash_code(number: int) -> ErrorCode:
    return SIGNAL_CODES.get(number, ErrorCode.CHILD_CRASHED)


def _describe_crash(outcome: JobOutcome) -> str:
    how = signal_name(outcome.signal) if outcome.signal else f"exit status {outcome.status}"
    site = crash_site(outcome.log) if outcome.signal else ""
    tail = "" if site else without_server_details(outcome.log.strip()[-LOG_TAIL_CHARACTERS:])
    ends = f"its log ends: {tail}" if tail else ""
    return "; ".join(filter(None, (f"the job's process ended with {how}", site, ends)))


MAX_FRAMES = 4

_PYTHON = re.compile(
    r"^Fatal Python error: .*\n\n.*Stack \(most recent call first\):\n((?:  File .*\n)+)", re.M
)
_PYTHON_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (.+)')
_NATIVE = re.compile(r"^!+ \w+ encountered !+\n((?:  File .*\n?)+)", re.M)
_NATIVE_FRAME = re.compile(r'File "([^"]*)", line \d+, in (.+)')
_SIGNAL_FRAME = "libc_sigaction"


def crash_site(log: str) -> str:
    """The innermost frames of a crash, such as ``in strlen, string_at; Python at model.py:3 (forward)``.

    ``faulthandler`` writes Python's frames; TVM's own handler writes the native ones after a SIGSEGV. A job
    can write anything into its log, so the result is only shown as text and decides nothing.

    Returns:
        An empty text if the log shows no crash.
    """
    native, python = _native_frames(log), _python_frames(log)
    parts = [f"in {', '.join(native)}" if native else "", f"Python at {', '.join(python)}" if python else ""]
    return "; ".join(filter(None, parts))


def _python_frames(log: str) -> list[str]:
    found = _PYTHON.findall(log)
    frames = _PYTHON_FRAME.findall(found[-1])[:MAX_FRAMES] if found else []
    return [f"{without_server_details(file)}:{line} ({function})" for file, line, function in frames]


def _native_frames(log: str) -> list[str]:
    """The frames below the last signal handler."""
    found = _NATIVE.findall(log)
    frames = _NATIVE_FRAME.findall(found[-1]) if found else []
    handlers = [index for index, (file, _) in enumerate(frames) if _SIGNAL_FRAME in file]
    below = frames[handlers[-1] + 1 :] if handlers else frames
    return [function for _, function in below[:MAX_FRAMES]]


_MORE_TIME = {
    ErrorCode.TIMEOUT: "allow the job more time with `timeout_seconds`",
    ErrorCode.LIMIT_WALL_CLOCK: "raise BESSEMER_LIMIT_WALL_SECONDS on the worker",
}

_LESS_WORK = {
    Stage.CAPTURE: "Check how long the model takes to load and run in torch, and give it smaller inputs",
    Stage.TRANSLATE: "Make the graph smaller: loops and recurrences are unrolled step by step",
    Stage.OPTIMIZE: "Make the graph smaller, or turn off the rewrite or the measured kernel that the "
    "message names",
    Stage.TUNE: "Make the graph smaller: this stage schedules every function of it",
    Stage.BUILD: "Make the function that the message names smaller: its name lists its operators",
    Stage.VERIFY: "Check how long the model takes to run in torch, and give it smaller inputs",
    Stage.BENCHMARK: "Lower `benchmark.seconds`, or give the model smaller inputs",
    Stage.PACKAGE: "Check whether the worker's disk is slow or busy",
}


def with_remedy(problem: Problem, request: CompilationRequest) -> Problem:
    """Add advice for the stage in which a compilation ran out of time."""
    more_time = _MORE_TIME.get(problem.code)
    if more_time is None or problem.stage is None:
        return problem
    advice = f"{_less_work(Stage(problem.stage), request.tune)}; or {more_time}."
    return problem.model_copy(update={"advice": advice})


def _less_work(stage: Stage, tune: TuneOptions) -> str:
    if stage is not Stage.TUNE or tune.trials == 0:
        return _LESS_WORK[stage]
    if tune.seconds is None:
        return "Request fewer `tune.trials`, or limit the search with `tune.seconds`"
    return "Request fewer `tune.trials` or `tune.seconds`"
