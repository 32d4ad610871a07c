"""TensorIR functions as an object file."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import tirx

from worker.compiler.codegen.argument_checks import PIPELINE
from worker.snapshots.machine_code import write_sources


def write_object(
    module: tvm.IRModule, target: tvm.target.Target, path: Path, with_sources: bool = False
) -> None:
    """Generate code for scheduled functions.

    Args:
        module: the functions.
        target: for which processor.
        path: the object to write.
        with_sources: leave LLVM IR and assembly beside it.
    """
    with tvm.transform.PassContext(opt_level=3):
        compiled = tirx.build(module, target=target, pipeline=PIPELINE)
    compiled.write_to_file(str(path))
    if with_sources:
        write_sources(compiled, path)
