"""MetaSchedule's builder over the candidate server."""

from __future__ import annotations

import itertools
import pickle
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from worker.candidates.client import CandidateClient
from worker.candidates.requests import BuildBatch, BuildCandidate
from worker.compiler.codegen.link import link_shared
from worker.compiler.schedules.default import follow_plans

BUILD_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class BuilderSettings:
    """Where libraries are written, how many builders run at once, and how long each may take."""

    folder: Path
    workers: int
    timeout_seconds: float = BUILD_TIMEOUT_SECONDS


@derived_object
class CandidateBuilder(PyBuilder):
    """Compiles MetaSchedule's candidates in forked processes; one that fails is a result with an error."""

    def __init__(self, candidates: CandidateClient, settings: BuilderSettings) -> None:
        super().__init__()
        self.candidates = candidates
        self.settings = settings
        self.numbers = itertools.count()

    def build(self, build_inputs: list[BuilderInput]) -> list[BuilderResult]:
        """Build each input to a shared library in the settings' folder."""
        batch = BuildBatch(
            candidates=tuple(self.describe(build_input) for build_input in build_inputs),
            workers=self.settings.workers,
            timeout_seconds=self.settings.timeout_seconds,
        )
        outcomes = self.candidates.build_many(batch)
        return [BuilderResult(outcome.library, outcome.error) for outcome in outcomes]

    def describe(self, build_input: BuilderInput) -> BuildCandidate:
        """The input as the candidate server takes it."""
        library = self.settings.folder / f"candidate-{next(self.numbers)}.so"
        build = partial(build_library, build_input.mod, build_input.target)
        return BuildCandidate(payload=pickle.dumps(build), library=str(library))


def build_library(module: tvm.IRModule, target: tvm.target.Target, library: str) -> None:
    """Compile a candidate in this process and write its library."""
    module = follow_plans(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)
    built = tvm.tirx.build(module, target=target)
    with tempfile.TemporaryDirectory() as folder:
        built.export_library(library, fcompile=link_shared, workspace_dir=folder)
