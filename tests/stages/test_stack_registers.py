"""Kernels allocate large buffers at run time, and keep small ones in registers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from family_samples import source_of
from stage_samples import TARGET

from worker.compiler.codegen.generate import generate_code
from worker.compiler.codegen.lowering import PIPELINE
from worker.compiler.schedules import nest
from worker.compiler.schedules.nest import INDEX
from worker.compiler.target import compile_target
from worker.compiler.tuning.meta_schedule import build_library

LLVM = compile_target(TARGET).llvm


def through_a_buffer(size: int, loop: Callable[..., Any] = nest.serial) -> tvm.IRModule:
    """A scheduled function that copies numbers through a buffer of ``size`` numbers in each of its rows."""
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
    return tvm.IRModule({"main": scheduled})


@pytest.mark.parametrize(("size", "allocates"), [(16, False), (448, False), (65_536, True)])
@pytest.mark.parametrize("loop", [nest.serial, nest.parallel])
def test_only_large_buffers_are_allocated_at_run_time(
    loop: Callable[..., Any], size: int, allocates: bool
) -> None:
    built = generate_code(through_a_buffer(size, loop), LLVM)

    assert ("load ptr, ptr @__TVMBackendAllocWorkspace" in source_of(built)) == allocates


def test_a_candidate_of_a_search_is_lowered_as_the_library_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipelines: list[object] = []
    build = tvm.tirx.build

    def record(*arguments: Any, **options: Any) -> Any:
        pipelines.append(options.get("pipeline"))
        return build(*arguments, **options)

    monkeypatch.setattr(tvm.tirx, "build", record)
    build_library(through_a_buffer(448), LLVM, str(tmp_path / "candidate.so"))

    assert pipelines == [PIPELINE]
