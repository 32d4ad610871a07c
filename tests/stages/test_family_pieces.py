"""Joins, pads and look-ups as vectors; sorts and scattered writes row by row: odd shapes, several dtypes."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
from coverage_samples import Case, Together, run_together
from family_samples import main_of, scheduled, source_of, target_of
from hypothesis import given, settings
from hypothesis import strategies as st
from stage_samples import capture_module, make_context, optimized
from tvm import relax, tirx

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.families.pieces import thresholds
from worker.compiler.schedules.nest import substitute

DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int8)
SHAPES = ((2, 3, 5, 37), (1, 7, 1, 8), (3, 2, 9, 3), (1, 1, 4, 100))


def moved(name: str, function: Callable[..., Any], seed: int) -> Case:
    shape, dtype = SHAPES[seed % len(SHAPES)], DTYPES[seed % len(DTYPES)]
    return Case(f"{name} of {shape} {dtype}", function, (shape, shape), -9, 9, dtype)


def sorted_values(axis: int) -> Callable[..., Any]:
    return lambda x, y: (x.sort(dim=axis, stable=True)[0], y.argsort(dim=axis, descending=True, stable=True))


def joined(axis: int) -> Callable[..., Any]:
    return lambda x, y: torch.cat([x, y * 2, x], axis)


def scattered(axis: int, reduction: str) -> Callable[..., Any]:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        places = (y.abs() * 7).long() % x.shape[axis]
        return x.scatter_reduce(axis, places, y, reduction)

    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"join {axis}": joined(axis) for axis in range(4)},
    "pad": lambda x, y: (F.pad(x, (1, 2, 3, 0), value=4), F.pad(y, (9, 9))),
    "pad of channels": lambda x, _y: F.pad(x, (0, 0, 0, 0, 1, 1)),
    "crop and pad": lambda x, y: F.pad(x, (-1, 3, -1, 2)) + F.pad(y, (-1, 3, -1, 2), value=1),
    "join and pad": lambda x, y: F.pad(torch.cat([x, y], 3), (2, 1)),
    **{f"sort {axis}": sorted_values(axis) for axis in range(4)},
    **{
        f"{reduction} {axis}": scattered(axis, reduction)
        for axis, reduction in enumerate(("sum", "amax", "amin", "sum"))
    },
}
CASES = (
    *(moved(name, function, seed) for seed, (name, function) in enumerate(FUNCTIONS.items())),
    Case("wide rows", lambda x: (*x.topk(7, 1), x.sort(1)[1]), ((64, 200),)),
    Case("wide columns", lambda x: (*x.topk(3, 0, largest=False), x.sort(0)[0]), ((64, 200),)),
    Case("many writes", lambda x: torch.ones_like(x).scatter_add(0, (x * 9).long() % 64, x), ((64, 600),)),
)


def test_odd_shapes_agree_with_torch(server: CandidateClient, tmp_path: Path) -> None:
    run = run_together(server, CASES, target_of("x86-64-v3"), tmp_path)

    assert run.unclaimed == ()
    for number, (result, expected) in enumerate(zip(run.computed, run.expected, strict=True)):
        # torch adds halves up in float32
        tolerance = 1e-2 if expected.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(
            result, expected, rtol=tolerance, atol=tolerance, err_msg=f"output {number}"
        )


IMAGE = np.zeros((2, 3, 8, 40), "float32")
TABLE, PLACES = np.zeros((50, 64), "float32"), np.zeros((7,), "int64")
COPIES: dict[str, tuple[Callable[..., relax.Expr], tuple[np.ndarray, ...]]] = {
    "concat": (lambda x, y: relax.op.concat([x, y], 1), (IMAGE, IMAGE)),
    "concat along vectors": (lambda x, y: relax.op.concat([x, y], 3), (IMAGE, IMAGE)),
    "pad": (lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]), (IMAGE,)),
    "embedding": (lambda table, places: relax.op.take(table, places, axis=0), (TABLE, PLACES)),
    "slice": (lambda x: relax.op.strided_slice(x, [2], [1], [7]), (IMAGE,)),
}
WIDE = re.compile(r"store <\d+ x float>|call void @llvm\.memcpy")
NARROW = re.compile(r"load float,|store float ")


@pytest.mark.parametrize("name", COPIES)
def test_remaining_copies_move_vectors(name: str) -> None:
    build, inputs = COPIES[name]
    target = target_of("x86-64-v3")
    module = scheduled(main_of(build, *inputs), target)
    code = source_of(tvm.compile(module, target).mod)

    assert len(WIDE.findall(code)) >= 2
    assert len(NARROW.findall(code)) == 0


def test_rows_of_sorts_and_scattered_writes_are_shared_by_threads(tmp_path: Path) -> None:
    cases = CASES[-3:]
    inputs = tuple(tensor for case in cases for tensor in case.inputs())
    ready = optimized(capture_module(Together(cases), *inputs), make_context(tmp_path))
    functions = {
        variable.name_hint: function.script()
        for variable, function in ready.module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    rows = {name: text for name, text in functions.items() if name.startswith(("argsort", "topk", "scatter"))}

    assert len(rows) >= 4
    assert {name for name, text in rows.items() if "T.parallel" not in text} == set()


@settings(max_examples=50)
@given(
    st.sampled_from([tirx.LT, tirx.LE, tirx.GT, tirx.GE]),
    st.integers(-3, 3).filter(bool),
    st.integers(-9, 9),
    st.integers(-9, 9),
)
def test_a_threshold_is_where_a_comparison_turns(order: type, factor: int, shift: int, bound: int) -> None:
    place = tirx.Var("place", "int64")
    condition = order(place * factor + shift, tirx.IntImm("int64", bound))
    found = thresholds(condition, [place])

    assert found is not None
    (threshold,) = found
    for value in range(-30, 30):
        truth = tvm.sym.Analyzer().simplify(substitute(condition, {place: tirx.IntImm("int64", value)}))
        assert bool(truth) is ((value >= threshold.first) is threshold.true_behind)
