"""Benchmarks models against other runtimes: ``make bench-models MODELS="bert resnet18" BATCHES="1 8"``.

With ``DTYPE=bfloat16`` or ``float16``, models compute in that type; inputs and outputs stay float32.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.machine import describe, kind_here
from benchmarks.models.alternation import TOLERATED_ERRORS, measure_sides, measure_slow
from benchmarks.models.compiling import (
    CHAIN_LAYERS,
    CHAINS,
    Compiled,
    compile_bundle,
    measure_growth,
    sgemm,
)
from benchmarks.models.display import Display
from benchmarks.models.operators import profile, rate_operators
from benchmarks.models.prepare import Prepared, prepare
from benchmarks.models.published import published
from benchmarks.models.results import (
    BATCH_SEPARATOR,
    STOCK,
    GrowthResult,
    ModelResult,
    ModelsResults,
    SgemmResult,
    SideResult,
    State,
    ceiling_of,
    larger_batches,
    topic,
)
from benchmarks.models.runtimes import BESSEMER, PEERS, TORCH_EAGER, Subject, stock_tvm
from bessemer import BessemerError
from bessemer.client import Client
from examples.local_service import local_service
from examples.models import EXAMPLES, Example

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = 20
COMPILE_ROUNDS = 2
SGEMM_SIZES = (512, 768, 1024)
_GIGA = 1e9


@dataclass(frozen=True)
class Plan:
    """What one run measures."""

    examples: tuple[Example, ...]
    rounds: int
    threads: int
    dtype: str
    stock: bool
    stock_trials: int
    growth: bool

    @property
    def peers(self) -> tuple[str, ...]:
        """The table's columns."""
        return (*(peer.name for peer in PEERS), *((STOCK,) if self.stock else ()))

    @property
    def steps(self) -> int:
        """The number of progress steps."""
        per_model = 3 + self.rounds + 1 + len(PEERS) + self.stock
        per_sgemm = 2 + self.rounds + 2
        chains = len(CHAINS) * len(CHAIN_LAYERS) if self.growth else 0
        return len(self.examples) * per_model + len(SGEMM_SIZES) * per_sgemm + chains


class Suite:
    """One run: compile everything, stop the service, then measure."""

    def __init__(self, plan: Plan, folder: Path, display: Display) -> None:
        self._plan = plan
        self._folder = folder
        self._display = display
        self._log = folder / "log.txt"
        self._prepared: dict[str, Prepared] = {}
        self._compiled: dict[str, Compiled | BessemerError] = {}

    def run(self) -> tuple[list[SgemmResult], list[ModelResult], list[GrowthResult]]:
        """Run the whole plan."""
        products = [self._subject(sgemm(size)) for size in SGEMM_SIZES]
        subjects = [self._subject(example, self._plan.dtype) for example in self._plan.examples]
        for subject in (*products, *subjects):
            self._doing("preparing", subject)
            self._prepared[subject.example.name] = prepare(subject, self._log, subject in subjects)
            self._display.advance()
        growth = self._compile(products, subjects)
        ceilings = [self._measure_product(subject) for subject in products]
        models = [self._measure(subject, ceiling_of(ceilings)) for subject in subjects]
        return ceilings, models, growth

    def _compile(self, products: list[Subject], subjects: list[Subject]) -> list[GrowthResult]:
        self._display.doing("starting a service")
        with local_service(self._folder / "service") as url, Client(url) as client:
            for subject in products:
                self._compile_one(client, subject, 1)
            for subject in subjects:
                self._compile_one(client, subject, COMPILE_ROUNDS)
            if not self._plan.growth:
                return []
            self._display.doing("compiling chains of layers")
            chains = self._folder / "chains"
            chains.mkdir()
            return measure_growth(client, chains, self._display.advance)

    def _compile_one(self, client: Client, subject: Subject, rounds: int) -> None:
        self._doing("compiling", subject)
        name = subject.example.name
        try:
            self._compiled[name] = compile_bundle(client, subject, rounds)
        except BessemerError as error:
            self._compiled[name] = error
        self._display.advance()

    def _measure_product(self, subject: Subject) -> SgemmResult:
        self._doing("measuring", subject)
        name = subject.example.name
        ours, theirs = measure_sides(
            subject,
            (BESSEMER, TORCH_EAGER),
            self._prepared[name].references,
            self._plan.rounds,
            self._log,
            self._display.advance,
        )
        (size, _) = subject.example.inputs[0].shape
        return SgemmResult(size=size, torch_gflops=_gflops(theirs, size), ours_gflops=_gflops(ours, size))

    def _measure(self, subject: Subject, ceiling_gflops: float) -> ModelResult:
        self._doing("measuring", subject)
        name = subject.example.name
        prepared, compiled = self._prepared[name], self._compiled[name]
        ours, *peers = measure_sides(
            subject,
            (BESSEMER, *PEERS),
            prepared.references,
            self._plan.rounds,
            self._log,
            self._display.advance,
        )
        if self._plan.stock:
            self._doing("measuring stock TVM on", subject)
            runtime = stock_tvm(self._plan.stock_trials)
            peers.append(measure_slow(subject, runtime, prepared.references, ours, self._log))
            self._display.advance()
        self._doing("profiling", subject)
        result = _model_result(subject, prepared, compiled, ours, peers)
        if isinstance(compiled, Compiled):
            functions = compiled.report.benchmark.functions
            result.operators = rate_operators(profile(subject, self._log), functions, ceiling_gflops)
        self._display.advance()
        self._display.show(result)
        return result

    def _subject(self, example: Example, dtype: str = "float32") -> Subject:
        return Subject(example, self._folder / example.name, self._plan.threads, dtype)

    def _doing(self, what: str, subject: Subject) -> None:
        self._display.doing(f"{what} {subject.example.name}")


def main() -> None:
    """Run the suite and write the results."""
    known = EXAMPLES | published()
    arguments = _arguments(known)
    names = arguments.models or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"unknown model {', '.join(unknown)}: choose from {', '.join(known)}")
    plan = Plan(
        examples=tuple(
            with_dtype(with_batch(known[name], batch), arguments.dtype)
            for batch in arguments.batches
            for name in names
        ),
        rounds=arguments.rounds,
        threads=len(os.sched_getaffinity(0)),
        dtype=arguments.dtype,
        stock=not arguments.without_stock,
        stock_trials=arguments.stock_trials,
        growth=not arguments.models,
    )
    console = Console()
    load_before, start = os.getloadavg()[0], time.monotonic()
    console.print(f"{plan.threads} threads, {plan.dtype}, no trials; load average {load_before:.2f}")
    with (
        tempfile.TemporaryDirectory(prefix="bessemer-bench-") as folder,
        Display(console, plan.peers, plan.steps) as display,
    ):
        sgemm_results, models, growth = Suite(plan, Path(folder), display).run()
    results = ModelsResults(
        machine=describe(_peer_packages()),
        measured_at=datetime.now(UTC),
        minutes=round((time.monotonic() - start) / 60, 1),
        load_before=round(load_before, 2),
        threads=plan.threads,
        sgemm=sgemm_results,
        models=models,
        growth=growth,
    )
    is_whole = not arguments.models and plan.dtype == "float32"
    path = arguments.output or _results_path(results, is_whole)
    path.write_text(results.model_dump_json(indent=2) + "\n")
    console.print(f"written to {path}, after {results.minutes} minutes")


def with_batch(example: Example, batch: int) -> Example:
    """The model with ``batch`` samples in each input; all have one sample."""
    if batch == 1:
        return example
    inputs = tuple(replace(each, shape=(batch, *each.shape[1:])) for each in example.inputs)
    return replace(example, name=f"{example.name}{BATCH_SEPARATOR}{batch}", inputs=inputs)


class _Narrowed(nn.Module):
    """A model that computes in a narrower dtype, and reads and returns float32."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model.to(dtype), dtype

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs, widened."""
        narrow = (each.to(self.dtype) if each.is_floating_point() else each for each in inputs)
        return pytree.tree_map(lambda each: each.float(), self.model(*narrow))


def with_dtype(example: Example, dtype: str) -> Example:
    """The model in a dtype."""
    if dtype == "float32":
        return example
    return replace(example, build=lambda: _Narrowed(example.build(), getattr(torch, dtype)).eval())


def _arguments(known: Mapping[str, Example]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-models", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--batches", type=int, nargs="+", default=[1], help="samples in each run; default: 1")
    dtypes = list(TOLERATED_ERRORS)
    parser.add_argument(
        "--dtype", choices=dtypes, default=dtypes[0], help="the models' dtype; default: float32"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds")
    parser.add_argument("--without-stock", action="store_true", help="skip stock TVM")
    parser.add_argument("--stock-trials", type=int, default=0, help="trials of stock TVM's search")
    parser.add_argument("--output", type=Path, help="the results file")
    return parser.parse_args()


def _results_path(results: ModelsResults, whole: bool) -> Path:
    """The default path, only for a run of the whole suite."""
    about = topic if results.has_single_samples else larger_batches
    name = f"{results.measured_at:%Y-%m-%d}-{about(kind_here())}.json"
    return RESULTS / name if whole else Path("bench-models.json")


def _peer_packages() -> tuple[str, ...]:
    return tuple(peer.package for peer in PEERS if peer.version is not None)


def _gflops(side: SideResult, size: int) -> float:
    if side.latency is None:
        return 0.0
    return round(2 * size**3 / (side.latency.min_ms * 1e-3) / _GIGA, 1)


def _model_result(
    subject: Subject,
    prepared: Prepared,
    compiled: Compiled | BessemerError,
    ours: SideResult,
    peers: list[SideResult],
) -> ModelResult:
    result = ModelResult(
        name=subject.example.name,
        inputs=[spec.spec for spec in subject.example.inputs],
        gflop=round(prepared.gflop, 4),
        library_bytes=0,
        unclaimed=0,
        ours=ours,
        peers=peers,
        operators=[],
        stages={},
    )
    if isinstance(compiled, BessemerError):
        result.ours.state, result.ours.note = State.FAILED, str(compiled)
        return result
    result.library_bytes = compiled.report.benchmark.library_bytes
    result.unclaimed = compiled.report.tune.unclaimed
    result.stages = compiled.stages
    return result


if __name__ == "__main__":
    main()
