"""Builds a library as TVM itself lowers the module, without our rewrites, fusion and schedules."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm.relax import backend, transform

from bessemer.contract.problem import ErrorCode
from worker.compiler.codegen.executable import build_library
from worker.errors import failure_of

PLAIN: tuple[tvm.transform.Pass, ...] = (
    transform.DecomposeOpsForInference(),
    backend.DispatchSampling(),
    backend.DispatchSortScan(),
    transform.LegalizeOps(),
)


def build_plain(module: tvm.IRModule, target: tvm.target.Target, library: Path, objects: Path) -> None:
    """Build the module: every operator as TVM's own TensorIR function, every function as its author wrote it.

    Raises:
        JobError: ``capture-failed``: TVM cannot lower the module.
    """
    try:
        with target, tvm.transform.PassContext(opt_level=3):
            module = tvm.transform.Sequential(PLAIN)(module)
        build_library(module, target, library, objects)
    except Exception as error:
        raise failure_of(ErrorCode.CAPTURE_FAILED, error) from error
