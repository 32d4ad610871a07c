"""Two schedules of one model against each other, measured as its user will run it."""

from __future__ import annotations

from dataclasses import replace

import tvm

from worker.candidates.client import LibraryCrashedError
from worker.pipeline.benchmark import LibrarySide
from worker.pipeline.build import build
from worker.pipeline.rounds import alternate
from worker.pipeline.types import Built, Tuned, Workshop
from worker.statistics import round_ratios

CONTEST_SECONDS = 1.0


def is_faster(tuned: Tuned, module: tvm.IRModule, workshop: Workshop) -> bool:
    """Whether a tuned model runs faster than the same model with ``module``'s schedules.

    A candidate that wins in a loop of its own may lose between other functions, whose threads and caches it
    shares. Both models are built, and timed in alternation.

    Args:
        tuned: the model with the search's schedules.
        module: the model with the default ones.
        workshop: folders and the candidate server.

    Raises:
        JobError: ``build-failed``: one of them cannot be built.
    """
    ours = _build(tuned, workshop, "tuned")
    theirs = _build(replace(tuned, module=module), workshop, "default")
    try:
        return _ratio(ours, theirs, workshop) < 1.0
    except LibraryCrashedError:
        return False


def _build(tuned: Tuned, workshop: Workshop, name: str) -> Built:
    folder = workshop.scratch / "contest" / name
    folder.mkdir(parents=True, exist_ok=True)
    return build(tuned, replace(workshop, output=folder, scratch=folder))


def _ratio(ours: Built, theirs: Built, workshop: Workshop) -> float:
    captured = ours.tuned.optimized.captured
    threads = captured.upload.target.cores
    with (
        workshop.candidates.open_library(ours.library, threads) as ours_open,
        workshop.candidates.open_library(theirs.library, threads) as theirs_open,
    ):
        for library in (ours_open, theirs_open):
            library.run(captured.inputs)
        rounds = alternate(
            (LibrarySide(ours_open), LibrarySide(theirs_open)), CONTEST_SECONDS, lambda _done, _of: None
        )
    return round_ratios(rounds.sides[0], rounds.sides[1]).p50
