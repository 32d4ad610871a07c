"""Build and verify, and compile again without the service's tuning records if the library fails with them.

A record is advice: it must not fail a compilation that succeeds without it. The second compilation is part of
the stage that failed.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from bessemer.contract.problem import ErrorCode
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.recompile import verify_or_recompile
from worker.compiler.pipeline.tune import tune
from worker.compiler.values import Built, StageContext, Tuned, Verified
from worker.errors import JobError
from worker.protocol.messages import MAX_TRIALS_AT_ONCE, TrialsJudged
from worker.protocol.observer import JobObserver

_UNBUILT = frozenset({ErrorCode.BUILD_FAILED, ErrorCode.FUNCTION_TOO_SLOW})
_WRONG = frozenset({ErrorCode.VERIFY_MISMATCH, ErrorCode.VERIFY_CRASHED})

_log = logging.getLogger(__name__)


def build_or_drop_records(tuned: Tuned, context: StageContext) -> Built:
    """Build; if that fails with the service's records, build with the default schedules.

    Raises:
        JobError: as ``build`` does, without records if there were some.
    """
    try:
        return build(tuned, context)
    except JobError as error:
        if error.code not in _UNBUILT or not tuned.applied:
            raise
        return _rebuilt(tuned, context, error)


def verify_or_drop_records(built: Built, context: StageContext) -> Verified:
    """Verify; if that fails with the service's records, build and verify with the default schedules.

    Raises:
        JobError: as ``verify_or_recompile`` does, without records if there were some.
    """
    try:
        return verify_or_recompile(built, context)
    except JobError as error:
        if error.code not in _WRONG or not built.tuned.applied:
            raise
        return verify_or_recompile(_rebuilt(built.tuned, context, error), context)


def _rebuilt(tuned: Tuned, context: StageContext, error: JobError) -> Built:
    _log.warning("compiling again without tuning records, since with them %s", error.detail)
    scratch = context.scratch / "without-records"
    scratch.mkdir(exist_ok=True)
    without = replace(context, scratch=scratch, stored=None, observer=JobObserver())
    default = tune(tuned.as_expected or tuned.optimized, without)
    built = build(default, without)
    if context.stored is not None:
        for start in range(0, len(tuned.applied), MAX_TRIALS_AT_ONCE):
            context.stored.report(TrialsJudged(judged=tuned.applied[start : start + MAX_TRIALS_AT_ONCE]))
    use = tuned.result.stored and tuned.result.stored.model_copy(update={"dropped": error.detail})
    result = default.result.model_copy(update={"stored": use})
    return replace(built, tuned=replace(default, result=result))
