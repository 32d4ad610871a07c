"""Makes bundles while a search runs.

Each goes through the same stages as the last one, in folders of its own, and then through the supervisor's
check.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace

from bessemer.bundle.manifest import ARCHIVE
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import StageContext, Tuned
from worker.protocol.messages import EARLY_ARCHIVE
from worker.protocol.observer import JobObserver

_log = logging.getLogger(__name__)


def publish_bundle(tuned: Tuned, number: int, context: StageContext) -> None:
    """Make the bundle of a scheduled model, and have it published.

    Args:
        tuned: the model.
        number: how many bundles the search has made, with this one.
        context: the search's.

    Raises:
        JobError: a stage failed.
    """
    scratch = context.scratch / f"early-{number}"
    output = scratch / "output"
    output.mkdir(parents=True)
    quiet = replace(context, scratch=scratch, output=output, observer=JobObserver(), compares=False)
    archive = context.output / EARLY_ARCHIVE
    try:
        packaged = package(benchmark(verify(build(tuned, quiet), quiet), quiet), quiet)
        (output / ARCHIVE).replace(archive)
        refusal = context.publish(packaged.benchmarked)
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
    if refusal:
        _log.warning("the early bundle was not published: %s", refusal)
