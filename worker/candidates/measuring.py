"""The measuring process: forked for a batch, it times one candidate after another."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from worker.candidates.gpu_timing import GpuError, GpuTimer
from worker.candidates.process import (
    ForkedProcess,
    fork_process,
    receive_value,
    run_module,
    send_value,
    use_threads,
    wait_any,
)
from worker.candidates.requests import (
    Evaluation,
    MeasureBatch,
    MeasureCandidate,
    MeasureOutcome,
    TensorArgument,
)
from worker.errors import describe_end, short_message

_SLOW_SECONDS = 0.2
_LEAST_REPEATS = 4
_CLEARLY = 1.5
"""A candidate is clearly slower if it takes this many times as long as the best."""


def measure_batch(batch: MeasureBatch, parent: int) -> tuple[MeasureOutcome, ...]:
    """Time every candidate of a batch, one at a time.

    If a process dies or hangs, the candidate that it was timing fails, and a new process goes on with the
    next.

    Args:
        batch: the candidates.
        parent: a descriptor that ends when the job child is gone.

    Returns:
        One outcome per candidate, in the same order.

    Raises:
        EOFError: the job child is gone.
    """
    outcomes: list[MeasureOutcome] = []
    while len(outcomes) < len(batch.candidates):
        process = _start(batch, len(outcomes))
        outcomes += _outcomes_of(process, batch, len(batch.candidates) - len(outcomes), parent)
    return tuple(outcomes)


def _outcomes_of(
    process: ForkedProcess, batch: MeasureBatch, count: int, parent: int
) -> list[MeasureOutcome]:
    outcomes: list[MeasureOutcome] = []
    while len(outcomes) < count:
        ready = wait_any((process.reader, parent), batch.timeout_seconds)
        if parent in ready:
            raise EOFError("the job child is gone")
        if not ready:
            process.kill()
            return [*outcomes, _failed(f"the run took longer than {batch.timeout_seconds:g} s")]
        try:
            outcomes.append(process.receive())
        except EOFError:
            return [*outcomes, _failed(f"the measuring process {describe_end(process.close())}")]
        if outcomes[-1].ends_process:
            break
    process.kill()
    return outcomes


def _failed(error: str) -> MeasureOutcome:
    return MeasureOutcome(seconds=(), error=error)


def _start(batch: MeasureBatch, first: int) -> ForkedProcess:
    """A process that times the candidates from the ``first`` on.

    For a GPU, it runs a new interpreter: in a fork, the driver refuses to work if a library has started it in
    a parent, as builds of torch for CUDA do.
    """
    candidates = batch.candidates[first:]
    if not batch.on_gpu:
        return fork_process(partial(_measure_here, batch, candidates))
    process = fork_process(partial(run_module, __name__))
    with suppress(BrokenPipeError):  # its outcomes will say that it has ended
        process.send((batch.evaluation, candidates))
    return process


def _measure_here(
    batch: MeasureBatch, candidates: Sequence[MeasureCandidate], _reader: int, writer: int
) -> None:
    use_threads(batch.threads)
    _measure_each(partial(CandidateTimer, batch.evaluation), candidates, writer)


def _measure_each(
    make: Callable[[], CandidateTimer | GpuTimer], candidates: Sequence[MeasureCandidate], writer: int
) -> None:
    timer: CandidateTimer | GpuTimer | None = None
    for candidate in candidates:
        try:
            timer = timer or make()
            outcome = MeasureOutcome(seconds=timer.measure(candidate), error=None)
        except Exception as error:
            outcome = MeasureOutcome((), short_message(error), ends_process=isinstance(error, GpuError))
        send_value(writer, outcome)
        if outcome.ends_process:
            return


@dataclass(frozen=True)
class TimingPlan:
    """How often a candidate is called: ``repeats`` times ``calls``."""

    repeats: int
    calls: int


def is_clearly_slower(seconds: float, rival_seconds: float | None) -> bool:
    """Whether a candidate cannot become the best one of its function."""
    return rival_seconds is not None and seconds > _CLEARLY * rival_seconds


def timing_plan(
    evaluation: Evaluation, call_seconds: float, rival_seconds: float | None = None
) -> TimingPlan:
    """How often to call a candidate whose first warm call took ``call_seconds``.

    One call may have waited for other processes. So only a clearly slow candidate gets a single further
    call; every other gets at least ``_LEAST_REPEATS``. One that is clearly slower than the best gets no more.
    """
    if call_seconds >= _SLOW_SECONDS:
        return TimingPlan(repeats=1, calls=1)
    if is_clearly_slower(call_seconds, rival_seconds):
        return TimingPlan(repeats=_LEAST_REPEATS, calls=1)
    calls = int(evaluation.repeat_seconds / max(call_seconds, 1e-7))
    repeats = int(evaluation.repeats * evaluation.repeat_seconds / max(call_seconds, 1e-7))
    return TimingPlan(
        repeats=min(max(repeats, _LEAST_REPEATS), evaluation.repeats),
        calls=min(max(calls, 1), evaluation.max_calls),
    )


class CandidateTimer:
    """Times candidates in this process. Candidates with equal shapes share their arguments.

    A candidate that was clearly slower than the best is not timed in further rounds.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._arguments: dict[tuple[TensorArgument, ...], list[Any]] = {}
        self._stopped: dict[str, tuple[float, ...]] = {}

    def measure(self, candidate: MeasureCandidate) -> tuple[float, ...]:
        """Seconds of one call of ``main``, averaged within each repeat."""
        import tvm

        if candidate.library in self._stopped:
            return self._stopped[candidate.library]
        module = tvm.runtime.load_module(candidate.library)
        arguments = self._arguments_for(candidate.arguments)
        main = module["main"]
        main(*arguments)
        start = time.perf_counter()
        main(*arguments)
        rival_seconds = candidate.rival_seconds
        plan = timing_plan(self._evaluation, time.perf_counter() - start, rival_seconds)
        evaluator = module.time_evaluator("main", tvm.cpu(), number=plan.calls, repeat=plan.repeats)
        found = tuple(float(seconds) for seconds in evaluator(*arguments).results)
        if is_clearly_slower(min(found), rival_seconds):
            self._stopped[candidate.library] = found
        return found

    def _arguments_for(self, shapes: tuple[TensorArgument, ...]) -> list[Any]:
        if shapes not in self._arguments:
            self._arguments[shapes] = [fill(argument) for argument in shapes]
        return self._arguments[shapes]


def fill(argument: TensorArgument) -> Any:
    """A tensor of normally distributed numbers; integers are zero, so that an index stays in its table."""
    import ml_dtypes
    import numpy as np
    import tvm

    if "float" not in argument.dtype:
        return tvm.runtime.tensor(np.zeros(argument.shape, dtype=argument.dtype))
    values = np.random.default_rng(0).standard_normal(argument.shape, dtype="float32")
    dtype = ml_dtypes.bfloat16 if argument.dtype == "bfloat16" else argument.dtype
    return tvm.runtime.tensor(values.astype(dtype))


def main() -> None:
    """Time candidates on this machine's GPU, in a new interpreter."""
    reader, writer = map(int, sys.argv[1:])
    evaluation, candidates = receive_value(reader)
    _measure_each(partial(GpuTimer, evaluation), candidates, writer)


if __name__ == "__main__":
    main()
