"""MetaSchedule's builder over the candidate server."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass
from pathlib import Path

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder

from worker.candidates.client import Candidates
from worker.candidates.requests import BuildBatch, BuildCandidate

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

    def __init__(self, candidates: Candidates, settings: BuilderSettings) -> None:
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
        payload = pickle.dumps((build_input.mod, build_input.target))
        return BuildCandidate(payload=payload, library=str(library))
