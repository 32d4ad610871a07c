"""Verify, and compile again without Winograd's algorithm if the outputs differ with it.

Each convolution's error is checked when the model is optimized, but a model may amplify it more than its own
rounding. The second compilation is part of the stage ``verify``; snapshots and stage times show the first.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from bessemer.contract.problem import ErrorCode
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.optimize import optimize
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.tune import tune
from worker.compiler.pipeline.verify import verify
from worker.compiler.schedules.annotations import FAMILY, WINOGRAD
from worker.compiler.values import Built, StageContext, Verified
from worker.errors import JobError
from worker.protocol.observer import JobObserver

_log = logging.getLogger(__name__)


def verify_or_recompile(built: Built, context: StageContext) -> Verified:
    """Verify; if an output differs and Winograd's algorithm was used, compile all convolutions directly.

    Raises:
        JobError: as ``verify`` does, of the library with direct convolutions if there was one; what its
            stages raise.
    """
    try:
        return verify(built, context)
    except JobError as error:
        is_mismatch = error.code is ErrorCode.VERIFY_MISMATCH
        if not is_mismatch or not uses_winograd(built.tuned.optimized.module):
            raise
        mismatch = error.detail
    _log.warning("compiling again with direct convolutions, since with Winograd's algorithm %s", mismatch)
    scratch = context.scratch / "direct"
    scratch.mkdir(exist_ok=True)
    directly = replace(context, scratch=scratch, direct_convolutions=True, observer=JobObserver())
    translated = translate(built.captured, directly)
    rebuilt = build(tune(optimize(translated, directly), directly), directly)
    return replace(verify(rebuilt, context), winograd_mismatch=mismatch)


def uses_winograd(module: tvm.IRModule) -> bool:
    """Whether a function of a module without schedules computes a convolution by Winograd's algorithm."""
    found: list[bool] = []

    def visit(block: s_tir.SBlock) -> None:
        found.append(str(block.annotations.get(FAMILY, "")) == WINOGRAD)

    for function in module.functions.values():
        if isinstance(function, tirx.PrimFunc):
            tvm_ffi.structural_walk(function.body, (s_tir.SBlock, visit))
    return any(found)
