"""Makes bundles that are published before the compilation ends.

A search makes each of its bundles by the same stages as the last one, in folders of its own. Without a
search, the verified library is packaged before it is measured. The supervisor checks every bundle.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bessemer.bundle.manifest import ARCHIVE
from bessemer.contract.job import ONLY_OWN_PROCESSOR
from bessemer.contract.stage import Stage
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import Benchmarked, StageContext, Tuned, Verified
from worker.errors import JobError
from worker.protocol.messages import EARLY_ARCHIVE
from worker.protocol.observer import JobObserver

NOT_EARLY = f"no early bundle: {ONLY_OWN_PROCESSOR}"

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
    with _own_folders(context, f"early-{number}") as own:
        _publish(benchmark(verify(build(tuned, own), own), own), own, context)


def publish_verified(verified: Verified, context: StageContext) -> None:
    """Package a verified library without figures and have it published, if the request asks for that.

    A search publishes its own bundles. If this fails, the compilation goes on: its last bundle will tell.
    """
    upload = verified.captured.upload
    request, target = upload.request, upload.target
    if request.searches or not (request.tune.publish_early and request.makes_bundle):
        return
    if not (verified.ran and target.is_native and target.gpu is None):
        report_not_early(Stage.BENCHMARK, context)
        return
    context.observer.progress(Stage.BENCHMARK, 0, 0, "publishing the verified bundle")
    try:
        with _own_folders(context, "early") as own:
            _publish(Benchmarked(verified=verified, result=None), own, context)
    except JobError as error:
        _log.warning("no early bundle: %s", error.detail)
    context.observer.progress(Stage.BENCHMARK, 0, 0, "measuring the library")


def report_not_early(stage: Stage, context: StageContext) -> None:
    """Say in the events, which may drop it, and in the log that the target has no early bundle."""
    context.observer.progress(stage, 0, 0, NOT_EARLY)
    _log.info(NOT_EARLY)


@contextmanager
def _own_folders(context: StageContext, name: str) -> Iterator[StageContext]:
    """A context for stages that the user does not see, with folders that are removed afterwards."""
    scratch = context.scratch / name
    output = scratch / "output"
    output.mkdir(parents=True)
    try:
        yield replace(context, scratch=scratch, output=output, observer=JobObserver(), compares=False)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _publish(benchmarked: Benchmarked, own: StageContext, context: StageContext) -> None:
    archive = context.output / EARLY_ARCHIVE
    packaged = package(benchmarked, own)
    (own.output / ARCHIVE).replace(archive)
    try:
        refusal = context.publish(packaged.benchmarked)
    finally:
        archive.unlink(missing_ok=True)
    if refusal:
        _log.warning("the early bundle was not published: %s", refusal)
