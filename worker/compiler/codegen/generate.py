"""Generates machine code for scheduled functions."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import tirx

from worker.compiler.codegen.lowering import PIPELINE
from worker.snapshots.machine_code import write_sources

_CONFIG = {"tirx.enable_buffer_level_predication": False}
"""By default, TVM masks loads and stores of the borders of tiles where vectors are scalable (SVE, RVV), and
fails in some functions (TVM 0.27)."""


def generate_code(module: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Generate code for scheduled functions, for a library and for a search's candidates alike."""
    with tvm.transform.PassContext(opt_level=3, config=_CONFIG):
        return tirx.build(module, target=target, pipeline=PIPELINE)


def write_object(
    module: tvm.IRModule, target: tvm.target.Target, path: Path, with_sources: bool = False
) -> None:
    """Generate an object file for scheduled functions.

    Args:
        module: the functions.
        target: the processor.
        path: the object to write.
        with_sources: also write LLVM IR and assembly beside it.
    """
    code = generate_code(module, target)
    code.write_to_file(str(path))
    if with_sources:
        write_sources(code, path)
