"""What to do about a compilation that ran out of time: a pure policy over the stage in which it did."""

from bessemer.contract.options import TuneOptions
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage

_MORE_TIME = {
    ErrorCode.TIMEOUT: "allow the job more time with `timeout_seconds`",
    ErrorCode.LIMIT_WALL_CLOCK: "raise BESSEMER_LIMIT_WALL_SECONDS on the worker",
}

_LESS_WORK = {
    Stage.CAPTURE: "See how long the model takes to load and to run in torch, and give it smaller inputs",
    Stage.TRANSLATE: "Make the graph smaller: a loop or a recurrence is written out step by step",
    Stage.OPTIMIZE: "Make the graph smaller, or switch off the rewrite or the measured kernel that "
    "`detail` names",
    Stage.TUNE: "Make the graph smaller: every function of it gets a schedule in this stage",
    Stage.BUILD: "Make the function that `detail` names smaller: its name lists its operators",
    Stage.VERIFY: "See how long the model takes to run in torch, and give it smaller inputs",
    Stage.BENCHMARK: "Lower `benchmark.seconds`, or give the model smaller inputs",
    Stage.PACKAGE: "See whether the worker's disk is slow or busy",
}


def with_remedy(problem: Problem, request: CompilationRequest) -> Problem:
    """The problem, with advice for its stage where the compilation ran out of time."""
    more_time = _MORE_TIME.get(problem.code)
    if more_time is None or problem.stage is None:
        return problem
    advice = f"{_less_work(Stage(problem.stage), request.tune)}; or {more_time}."
    return problem.model_copy(update={"advice": advice})


def _less_work(stage: Stage, tune: TuneOptions) -> str:
    if stage is not Stage.TUNE or tune.trials == 0:
        return _LESS_WORK[stage]
    if tune.seconds is None:
        return "Ask for fewer `tune.trials`, or end the search in time with `tune.seconds`"
    return "Ask for fewer `tune.trials` or `tune.seconds`"
