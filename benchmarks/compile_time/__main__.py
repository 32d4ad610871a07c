"""Compiles random graphs: ``python -m benchmarks.compile_time [--graphs 1000] [--seed 1] [--jobs 2]``.

Each graph is verified in its own process. It may use a fixed processor time plus ``SECONDS_PER_OPERATOR`` for
each operator of the translated model. The ten slowest graphs are printed, and saved with all failures in
``benchmarks/results/<date>-compile-time.json``. The command exits with 1 if a graph fails or is too slow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from pydantic import BaseModel
from torch import nn

from benchmarks.architectures.entry import Architecture, Inputs
from benchmarks.architectures.outcomes import Form, Outcome, Reached, read_outcomes
from benchmarks.architectures.processes import survey_each, warm_up
from benchmarks.compile_time.graphs import Graph, GraphModel, graphs
from benchmarks.machine import Machine, describe

RESULTS = Path(__file__).parents[1] / "results"
SLOWEST = 10
SECONDS_PER_OPERATOR = 0.03
SECONDS_FOR_ANY = 1.0
LIMIT_SECONDS = 120


class Compiled(BaseModel):
    """A graph and the outcome of its compilation."""

    graph: str
    outcome: Outcome

    @property
    def allowed_seconds(self) -> float:
        """The processor time allowed for a graph of this size."""
        return SECONDS_FOR_ANY + SECONDS_PER_OPERATOR * self.outcome.operators

    @property
    def is_slow(self) -> bool:
        """Whether it exceeded ``allowed_seconds``."""
        return self.outcome.compile_seconds > self.allowed_seconds

    @property
    def has_failed(self) -> bool:
        """Whether it was not verified."""
        return self.outcome.reached is not Reached.VERIFIED


class Run(BaseModel):
    """One benchmark run."""

    machine: Machine
    seed: int
    graphs: int
    operators: int
    compile_seconds: float
    slowest: list[Compiled]
    too_slow: list[Compiled]
    failed: list[Compiled]


def main() -> int:
    """Compile random graphs. Return 1 if one fails or is too slow."""
    options = _options()
    drawn = draw_graphs(options.graphs, options.seed)
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "outcomes.jsonl"
        tasks = [
            (Architecture(_name(index), partial(make, graph)), Form.PT2) for index, graph in enumerate(drawn)
        ]
        survey_each(tasks, Reached.VERIFIED, progress, options.jobs, LIMIT_SECONDS)
        outcomes = read_outcomes(progress)
    compiled = [
        Compiled(graph=repr(graph), outcome=outcomes[_name(index), Form.PT2])
        for index, graph in enumerate(drawn)
    ]
    run = summarize(compiled, options.seed)
    _print(run)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-compile-time.json"
    path.write_text(run.model_dump_json(indent=1) + "\n")
    return int(bool(run.failed or run.too_slow))


def draw_graphs(count: int, start: int) -> list[Graph]:
    """Draw random graphs from a seed."""
    drawn: list[Graph] = []

    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs())
    def draw(graph: Graph) -> None:
        drawn.append(graph)

    draw()
    return drawn


def make(graph: Graph) -> tuple[nn.Module, Inputs]:
    """Build a graph's model and its input."""
    return GraphModel(graph).eval(), (torch.randn(graph.shape),)


def summarize(compiled: list[Compiled], start: int) -> Run:
    """Summarize one run."""
    slowest = sorted(compiled, key=lambda one: one.outcome.compile_seconds, reverse=True)
    return Run(
        machine=describe(("hypothesis",)),
        seed=start,
        graphs=len(compiled),
        operators=sum(one.outcome.operators for one in compiled),
        compile_seconds=round(sum(one.outcome.compile_seconds for one in compiled), 1),
        slowest=slowest[:SLOWEST],
        too_slow=[one for one in compiled if one.is_slow],
        failed=[one for one in compiled if one.has_failed],
    )


def _name(index: int) -> str:
    return f"graph/{index}"


def _print(run: Run) -> None:
    print(f"{run.graphs} graphs, {run.operators} operators, {run.compile_seconds} s of processor time")
    print(f"{len(run.failed)} failed, {len(run.too_slow)} too slow; the slowest:")
    for one in run.slowest:
        outcome = one.outcome
        print(
            f"{outcome.name:12} {outcome.compile_seconds:6.2f} s of {one.allowed_seconds:5.1f} s, "
            f"{outcome.operators:4} operators"
        )
    for one in [*run.failed, *run.too_slow]:
        print(f"{one.outcome.name}: {one.outcome.error or 'too slow'}\n  {one.graph}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
