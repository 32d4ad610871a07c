"""Times plans of functions in alternation, and writes a line for each function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from typing import Any

import tvm
from tvm import tirx

from benchmarks.cost_model.workloads import arguments_of, functions_of, sources
from bessemer.contract.cost_model import MeasuredFunction
from worker.compiler.codegen.generate import generate_code
from worker.compiler.codegen.link import link_shared
from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.default import default_schedule, ranked_plans
from worker.compiler.schedules.plans import with_plan
from worker.compiler.schedules.processors import Machine, machine_of
from worker.compiler.target import host_mcpu
from worker.compiler.tuning.cost_model.features import family_of, features_of, kind_of
from worker.compiler.tuning.stored_records import workload_of
from worker.errors import short_message

PREFERRED, DRAWN = 6, 6
"""How many plans of a function are timed: the family's first choices, and random ones of the rest."""

ROUNDS, ROUNDS_OF_THREADS = 12, 45
"""Several threads suffer more from other load: each waits until all have run."""

_ROUND_SECONDS = 1.5e-4
_SLOWEST_SECONDS = 0.03
_SOURCES = 400
AVX2 = "x86-64-v3"


@dataclass(frozen=True)
class TimedPlans:
    """Some plans of a function, with their seconds, and all plans that the family ranks (``known``)."""

    source: str
    kind: str
    machine: Machine
    shapes: tuple[Any, ...]
    known: tuple[Any, ...]
    plans: tuple[Any, ...]
    seconds: tuple[float, ...]

    @property
    def described(self) -> MeasuredFunction:
        """What the cost model learns from."""
        return MeasuredFunction(
            source=self.source,
            family=family_of(self.plans[0]),
            kind=self.kind,
            features=tuple(features_of(self.plans, self.known, self.shapes, self.machine)),
            places=tuple(map(self.known.index, self.plans)),
            seconds=self.seconds,
        )


def time_functions(threads: int, draws: Random, goes_on: Callable[[], bool]) -> Iterator[MeasuredFunction]:
    """Time plans of functions for this processor and for AVX2 until ``goes_on`` is false.

    A function that several models have counts for the first one.
    """
    targets = [
        tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": threads})
        for mcpu in (host_mcpu(), AVX2)
    ]
    seen: set[tuple[str, str]] = set()
    for source in sources(draws.randrange(1 << 30), _SOURCES):
        for target in targets:
            for name, module in functions_of(source.build(target), target):
                key = (workload_of(module), str(target))
                if not goes_on():
                    return
                if key in seen:
                    continue
                seen.add(key)
                try:
                    timed = time_plans(source.name, module, target, draws)
                except REFUSALS as error:
                    print(f"{source.name}: {name}: {short_message(error)}", flush=True)
                    continue
                if timed is not None:
                    yield timed.described


def time_plans(
    source: str, module: tvm.IRModule, target: tvm.target.Target, draws: Random
) -> TimedPlans | None:
    """Time some plans of a function on this machine; None if there is nothing to choose, or all are slow."""
    function = module["main"]
    known, shapes = ranked_plans(function, target)
    if len(known) < 2:
        return None
    rest = known[PREFERRED:]
    plans = (*known[:PREFERRED], *draws.sample(rest, min(DRAWN, len(rest))))
    with TemporaryDirectory() as folder:
        kernels = _built(function, plans, target, Path(folder))
        seconds = _times(kernels, arguments_of(module))
    if seconds is None:
        return None
    return TimedPlans(source, kind_of(target), machine_of(target), shapes, known, plans, tuple(seconds))


def _built(
    function: tirx.PrimFunc, plans: Sequence[Any], target: tvm.target.Target, folder: Path
) -> list[Any]:
    names = [f"plan{number}" for number, _ in enumerate(plans)]
    scheduled = {
        name: default_schedule(with_plan(function, plan), target).with_attr("global_symbol", name)
        for name, plan in zip(names, plans, strict=True)
    }
    built = generate_code(tvm.IRModule(scheduled), target)
    path = folder / "plans.so"
    built.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    library = tvm.runtime.load_module(str(path))
    return [library[name] for name in names]


def _times(kernels: Sequence[Any], arguments: Sequence[Any]) -> list[float] | None:
    """The least seconds of each kernel over all rounds, because other load only adds time."""
    is_alone = os.environ.get("TVM_NUM_THREADS") == "1"
    clock, count = (thread_time, ROUNDS) if is_alone else (perf_counter, ROUNDS_OF_THREADS)
    once = min(_seconds(kernels[0], arguments, 1, clock) for _ in range(3))
    if once > _SLOWEST_SECONDS:
        return None
    runs = max(1, int(_ROUND_SECONDS / once))
    rounds = [[_seconds(kernel, arguments, runs, clock) for kernel in kernels] for _ in range(count)]
    return [min(each) for each in zip(*rounds, strict=True)]


def _seconds(kernel: Any, arguments: Sequence[Any], runs: int, clock: Any) -> float:
    kernel(*arguments)
    began = clock()
    for _ in range(runs):
        kernel(*arguments)
    return float(clock() - began) / runs
