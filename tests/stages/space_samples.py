"""Products of matrices, and a package that offers spaces for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from itertools import count
from types import ModuleType

import tvm
from tvm import relax, s_tir, te

from worker.compiler.schedules.annotations import SCHEDULED
from worker.compiler.spaces.registry import POINT as SPACES
from worker.compiler.spaces.space import Space

POINT = EntryPoint(name="sample", value="sample_spaces:SPACES", group=SPACES.group)


@contextmanager
def installed(*entries: object) -> Iterator[EntryPoint]:
    """Install a package whose entry point offers these spaces."""
    module = ModuleType("sample_spaces")
    module.SPACES = entries  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        yield POINT
    finally:
        del sys.modules[module.__name__]


def divide_rows(schedule: s_tir.Schedule) -> None:
    """A user's space: changes the schedule in place with one decision."""
    rows, *_ = schedule.get_loops(schedule.get_sblock("matmul"))
    factors = schedule.sample_perfect_tile(rows, n=2, max_innermost_factor=16)
    outer, _ = schedule.split(rows, factors)
    schedule.parallel(outer)


def raises(_schedule: s_tir.Schedule) -> None:
    raise KeyError("no such thing")


_draws = count()


def hesitates(schedule: s_tir.Schedule) -> None:
    """Raises on every second call."""
    if next(_draws) % 2:
        raise KeyError("not now")
    divide_rows(schedule)


HESITATES = Space("hesitates", hesitates, "any function with a block 'matmul'")
DIVIDE_ROWS = Space("divide-rows", divide_rows, "any function with a block 'matmul'")
RAISES = Space("raises", raises, "none")


def product(rows: int, columns: int, depth: int, dtypes: tuple[str, str, str]) -> tvm.IRModule:
    """``[rows, depth]`` by ``[depth, columns]``."""
    left_dtype, right_dtype, dtype = dtypes
    left = te.placeholder((rows, depth), left_dtype, name="left")
    right = te.placeholder((depth, columns), right_dtype, name="right")
    k = te.reduce_axis((0, depth), "k")
    result = te.compute(
        (rows, columns),
        lambda i, j: te.sum(left[i, k].astype(dtype) * right[k, j].astype(dtype), axis=k),
        name="matmul",
    )
    function = te.create_prim_func([left, right, result])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def calling(kernel: tvm.IRModule) -> tvm.IRModule:
    """A module whose ``main`` calls the function of another that has its schedule."""
    function = kernel["main"].without_attr("global_symbol").with_attr(SCHEDULED, True)
    shapes = [relax.TensorType(list(buffer.shape), buffer.dtype) for buffer in function.params]
    left, right = relax.Var("left", shapes[0]), relax.Var("right", shapes[1])
    builder = relax.BlockBuilder()
    name = builder.add_func(function, "matmul")
    with builder.function("main", [left, right]):
        with builder.dataflow():
            result = builder.emit_output(relax.call_tir(name, (left, right), out_ty=shapes[2]))
        builder.emit_func_output(result)
    return builder.get()
