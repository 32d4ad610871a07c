"""Speed of a library's functions relative to the machine's fastest matrix product."""

from __future__ import annotations

from pathlib import Path

from benchmarks.models.results import OperatorResult
from benchmarks.models.runtimes import Subject
from benchmarks.models.side import RUN_SECONDS, print_to, receive
from bessemer.bundle.manifest import LIBRARY
from bessemer.contract.report import FunctionTime
from worker.candidates.library import LoadedLibrary
from worker.candidates.process import fork_process, send_value, use_threads

_PROFILE_SECONDS = 1.0
_RUNS = (5, 200)


def profile(subject: Subject, log: Path) -> tuple[FunctionTime, ...]:
    """Time each function of a bundle's library, in a separate process.

    Raises:
        SideFailedError: the process ended.
    """

    def work(_reader: int, writer: int) -> None:
        print_to(log)
        use_threads(subject.threads)
        library = LoadedLibrary(subject.bundle / LIBRARY)
        library.run(subject.arrays())
        runs = int(_PROFILE_SECONDS / min(library.time(3)))
        send_value(writer, library.profile(min(max(runs, _RUNS[0]), _RUNS[1])))

    process = fork_process(work)
    try:
        functions: tuple[FunctionTime, ...] = receive(process, RUN_SECONDS)
    finally:
        process.kill()
    return functions


def rate_operators(
    times: tuple[FunctionTime, ...], counted: tuple[FunctionTime, ...], ceiling_gflops: float
) -> list[OperatorResult]:
    """Rate the functions, slowest first; those with products get a speed.

    Args:
        times: the time of each function.
        counted: each function's floating-point operations, from the job's report.
        ceiling_gflops: the speed that shares are relative to.
    """
    products = {function.name: function for function in counted if function.flops}
    return [_rate(time, products.get(time.name), ceiling_gflops) for time in times]


def _rate(time: FunctionTime, counted: FunctionTime | None, ceiling_gflops: float) -> OperatorResult:
    result = OperatorResult(
        function=time.name,
        calls=time.calls,
        milliseconds=round(time.milliseconds, 4),
        best_milliseconds=round(time.best_milliseconds, 4),
        share=round(time.share, 4),
    )
    if counted is not None and time.best_milliseconds > 0:
        speed = counted.flops / time.best_milliseconds / 1e6
        result.products = counted.products
        result.gflops_per_second = round(speed, 1)
        result.share_of_ceiling = round(speed / ceiling_gflops, 3)
    return result
