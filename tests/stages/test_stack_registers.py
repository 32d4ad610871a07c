"""Kernels allocate large buffers at run time, and keep small ones in registers."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from family_samples import source_of
from stage_samples import TARGET

from worker.compiler.codegen.lowering import PIPELINE
from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX
from worker.compiler.target import compile_target

LLVM = compile_target(TARGET).llvm


@pytest.mark.parametrize(("size", "allocates"), [(16, False), (448, False), (65_536, True)])
@pytest.mark.parametrize("loop", [nest.serial, nest.parallel])
def test_only_large_buffers_are_allocated_at_run_time(
    loop: Callable[..., Any], size: int, allocates: bool
) -> None:
    function = nest.signature({"x": ((64,), "float32")}, {"y": ((64,), "float32")})
    x, y = function.params
    local = nest.registers((size,), "float32", "local")

    def row(i: Any) -> Any:
        return nest.sequence(
            nest.declare(local),
            nest.serial(size, lambda at: nest.store(local, x[i * 16 + at % 16], at), INDEX),
            nest.vectorized(16, lambda lane: nest.store(y, local[size - 16 + lane], i * 16 + lane), INDEX),
        )

    scheduled = nest.with_loops(function, loop(4, row, INDEX)).with_attr("global_symbol", "main")
    built = tvm.tirx.build(tvm.IRModule({"main": scheduled}), target=LLVM, pipeline=PIPELINE)

    assert ("load ptr, ptr @__TVMBackendAllocWorkspace" in source_of(built)) == allocates
