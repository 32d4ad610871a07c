"""Compiles models through a service and reads each stage's time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.models.results import GrowthResult
from benchmarks.models.runtimes import Subject
from bessemer.client import Client
from bessemer.contract.job import Compilation
from bessemer.contract.options import BenchmarkOptions
from bessemer.contract.report import Report
from bessemer.contract.stage import Stage
from examples.models import Example, ExampleInput
from examples.models.save import SavedAs, save
from examples.models.weights import randomize_batch_norms

QUICK = BenchmarkOptions(seconds=0.05, baselines=())
"""Keep the job's own benchmark short."""

CHAIN_LAYERS = (10, 50, 100)


class Compiled(NamedTuple):
    """A bundle's report, and each stage's seconds per job."""

    report: Report
    stages: dict[Stage, list[float]]


def compile_bundle(client: Client, subject: Subject, rounds: int) -> Compiled:
    """Compile a model ``rounds`` times and keep the last bundle.

    Raises:
        CompilationFailedError: the compilation failed.
    """
    jobs = [
        client.submit(subject.exported, target="host", benchmark=QUICK, cache=False).wait()
        for _ in range(max(rounds, 1))
    ]
    folder = jobs[-1].download(subject.bundle)
    stages = {
        stage: [_stage_seconds(job.document)[stage] for job in jobs]
        for stage in Stage
        if stage is not Stage.BENCHMARK
    }
    return Compiled(Report.model_validate_json((folder / "report.json").read_text()), stages)


def measure_growth(client: Client, folder: Path, advance: Callable[[], None]) -> list[GrowthResult]:
    """Compile chains of every kind and length."""
    results = []
    for kind, make in CHAINS.items():
        for layers in CHAIN_LAYERS:
            path = folder / f"{kind}-{layers}.pt2"
            save(make(layers), SavedAs.PT2, path)
            job = client.submit(path, target="host", benchmark=QUICK, cache=False).wait()
            seconds = _stage_seconds(job.document)
            results.append(GrowthResult(kind=kind, layers=layers, stages=seconds))
            advance()
    return results


def linear_chain(layers: int) -> Example:
    """Linear layers of one width with ReLUs: few functions, called often."""
    parts = [part for _ in range(layers) for part in (nn.Linear(256, 256), nn.ReLU())]
    return _example(nn.Sequential(*parts), (32, 256))


def widening_chain(layers: int) -> Example:
    """Linear layers of different widths with ReLUs: one function per layer."""
    widths = [64 + 4 * layer for layer in range(layers + 1)]
    parts = [part for before, after in pairwise(widths) for part in (nn.Linear(before, after), nn.ReLU())]
    return _example(nn.Sequential(*parts), (32, widths[0]))


def convolution_chain(layers: int) -> Example:
    """Convolutions of one size with batch norms and ReLUs."""
    parts = [
        part
        for _ in range(layers)
        for part in (nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    ]
    return _example(randomize_batch_norms(nn.Sequential(*parts), seed=layers), (1, 32, 28, 28))


CHAINS = {
    "linear layers": linear_chain,
    "linear layers of different widths": widening_chain,
    "convolutions with batch norms": convolution_chain,
}


def sgemm(size: int) -> Example:
    """A product of two square matrices; the second is a weight."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(size)
        module = nn.Linear(size, size, bias=False).eval()
    return Example(f"sgemm_{size}", lambda: module, (ExampleInput("x", (size, size)),))


def _example(module: nn.Module, shape: tuple[int, ...]) -> Example:
    module.eval()
    return Example("chain", lambda: module, (ExampleInput("x", shape),))


def _stage_seconds(document: Compilation) -> dict[Stage, float]:
    return {entry.stage: entry.seconds for entry in document.stages}
