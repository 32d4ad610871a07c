"""Matrix products of all shapes agree with numpy in float64."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from family_samples import (
    TARGETS,
    Array,
    exactly_followed_by,
    followed_by,
    fuzz,
    main_of,
    optimized,
    run_compiled,
    scheduled,
    source_of,
    spills,
    target_of,
)
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx

from worker.candidates.client import CandidateClient
from worker.compiler.codegen.executable import compile_module
from worker.compiler.layout.pack_linear import pack_panels
from worker.compiler.schedules.default import plans_of, schedule_rest, unclaimed_functions

TOLERANCES = {"float32": 1e-5, "float64": 1e-13}
ACTIVATIONS = ("none", "relu", "gelu", "tanh")
op = relax.op


@dataclass(frozen=True)
class Linear:
    """A linear layer with its epilogue."""

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    dtype: str
    transposed: bool
    bias: bool
    activation: str
    residual: bool


linears = st.builds(
    Linear,
    batch=st.sampled_from([(), (1,), (3,), (2, 2)]),
    rows=st.sampled_from([1, 2, 3, 5, 7, 8, 13, 16, 33]),
    depth=st.sampled_from([1, 2, 7, 31, 64, 100, 513, 2500]),
    columns=st.sampled_from([1, 3, 7, 8, 10, 13, 16, 24, 31, 40]),
    dtype=st.sampled_from(["float32", "float32", "float64"]),
    transposed=st.booleans(),
    bias=st.booleans(),
    activation=st.sampled_from(ACTIVATIONS),
    residual=st.booleans(),
)


@fuzz(10)
@given(mcpu=st.sampled_from(TARGETS), case=linears)
def test_a_linear_layer_agrees_with_numpy(
    server: CandidateClient, tmp_path: Path, mcpu: str, case: Linear
) -> None:
    generator = np.random.default_rng(0)
    data = generator.standard_normal((*case.batch, case.rows, case.depth)).astype(case.dtype)
    weights = generator.standard_normal((case.depth, case.columns)).astype(case.dtype)
    bias = generator.standard_normal(case.columns).astype(case.dtype)
    shortcut = generator.standard_normal((*case.batch, case.rows, case.columns)).astype(case.dtype)

    def layer(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        if case.transposed:
            matrix = op.permute_dims(relax.const(np.ascontiguousarray(weights.T), case.dtype))
        else:
            matrix = relax.const(weights, case.dtype)
        value = op.matmul(x, matrix)
        value = op.add(value, relax.const(bias, case.dtype)) if case.bias else value
        value = followed_by(value, case.activation)
        return op.add(value, y) if case.residual else value

    module = scheduled(main_of(layer, data, shortcut), target_of(mcpu))
    computed = run_compiled(server, module, target_of(mcpu), (data, shortcut), tmp_path)

    expected = data.astype("float64") @ weights.astype("float64") + (bias if case.bias else 0)
    expected = exactly_followed_by(torch.from_numpy(expected), case.activation).numpy()
    expected = expected + (shortcut if case.residual else 0)
    assert unclaimed_functions(module) == ()
    assert_close(computed, expected, case.dtype, case.depth)


@dataclass(frozen=True)
class Batched:
    """A product of two variables."""

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    dtype: str
    left_transposed: bool
    right_transposed: bool
    broadcast: bool


products = st.builds(
    Batched,
    batch=st.sampled_from([(), (1,), (4,), (2, 3)]),
    rows=st.sampled_from([1, 2, 7, 13, 16, 40]),
    depth=st.sampled_from([1, 3, 16, 65]),
    columns=st.sampled_from([1, 5, 8, 13, 16, 29, 300]),
    dtype=st.sampled_from(["float32", "float32", "float64"]),
    left_transposed=st.booleans(),
    right_transposed=st.booleans(),
    broadcast=st.booleans(),
)


@fuzz(10)
@given(mcpu=st.sampled_from(TARGETS), case=products)
def test_a_product_of_variables_agrees_with_numpy(
    server: CandidateClient, tmp_path: Path, mcpu: str, case: Batched
) -> None:
    generator = np.random.default_rng(0)
    left = generator.standard_normal((*case.batch, case.rows, case.depth)).astype(case.dtype)
    batch = () if case.broadcast else case.batch
    right = generator.standard_normal((*batch, case.depth, case.columns)).astype(case.dtype)
    inputs = (
        np.ascontiguousarray(left.swapaxes(-1, -2)) if case.left_transposed else left,
        np.ascontiguousarray(right.swapaxes(-1, -2)) if case.right_transposed else right,
    )

    def product(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        x = op.permute_dims(x, swapped(left.ndim)) if case.left_transposed else x
        y = op.permute_dims(y, swapped(right.ndim)) if case.right_transposed else y
        return op.multiply(op.matmul(x, y), relax.const(0.125, case.dtype))

    module = scheduled(main_of(product, *inputs), target_of(mcpu))
    computed = run_compiled(server, module, target_of(mcpu), inputs, tmp_path)

    assert unclaimed_functions(module) == ()
    assert_close(computed, left.astype("float64") @ right.astype("float64") / 8, case.dtype, case.depth)


def swapped(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def assert_close(computed: Array, expected: Array, dtype: str, depth: int) -> None:
    np.testing.assert_allclose(
        computed, expected, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * max(1, depth**0.5)
    )


@pytest.mark.parametrize("mcpu", ["znver4", "x86-64-v4", "x86-64-v2"])
def test_code_for_other_processors_is_generated(mcpu: str) -> None:
    data = np.ones((7, 50), "float32")
    weights = relax.const(np.ones((50, 37), "float32"), "float32")
    module = scheduled(main_of(lambda x: op.nn.relu(op.matmul(x, weights)), data), target_of(mcpu))

    assert tvm.compile(module, target_of(mcpu)) is not None


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("depth", [256, 768])
def test_the_inner_loop_keeps_all_sums_in_registers(depth: int, activation: str) -> None:
    target = target_of("x86-64-v3")
    data, weights = (
        np.ones((128, depth), "float32"),
        relax.const(np.ones((depth, 3072), "float32"), "float32"),
    )
    bias = relax.const(np.ones(3072, "float32"), "float32")
    layer = main_of(lambda x: followed_by(op.add(op.matmul(x, weights), bias), activation), data)

    code = compile_module(scheduled(layer, target), target).mod

    assert not spills(source_of(code, "s"), r"ymm.*\(%rsp|\(%rsp.*ymm")


@pytest.mark.parametrize(
    ("rows", "columns", "prefetches"),
    [
        pytest.param(1, 3072, {"prefetcht0"}, id="few rows read large weights once"),
        pytest.param(1, 8, set(), id="small weights stay in a cache"),
        pytest.param(64, 3072, {"prefetcht1"}, id="many rows read each panel again"),
        pytest.param(1600, 3072, set(), id="with very many rows the wait for a panel does not count"),
    ],
)
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4"])
def test_weights_that_come_from_memory_are_prefetched(
    mcpu: str, rows: int, columns: int, prefetches: set[str]
) -> None:
    target = target_of(mcpu)
    data = np.ones((rows, 768), "float32")
    weights = relax.const(np.ones((768, columns), "float32"), "float32")

    code = compile_module(scheduled(main_of(lambda x: op.matmul(x, weights), data), target), target).mod

    assert set(re.findall(r"prefetch\w+", source_of(code, "s"))) == prefetches


@pytest.mark.parametrize("rows", [2, 50])
def test_a_prefetching_product_agrees_with_numpy(server: CandidateClient, tmp_path: Path, rows: int) -> None:
    generator = np.random.default_rng(0)
    data = generator.standard_normal((rows, 1000)).astype("float32")
    weights = generator.standard_normal((1000, 1003)).astype("float32")
    target = target_of("x86-64-v3")

    module = scheduled(main_of(lambda x: op.matmul(x, relax.const(weights, "float32")), data), target)
    computed = run_compiled(server, module, target, (data,), tmp_path)

    assert_close(computed, data.astype("float64") @ weights.astype("float64"), "float32", 1000)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "cores"), [(40, 2500, 1003, 2), (61, 1537, 96, 2), (61, 3072, 13, 1)]
)
def test_a_product_by_parts_of_the_depth_agrees_with_numpy(
    server: CandidateClient, tmp_path: Path, rows: int, depth: int, columns: int, cores: int
) -> None:
    generator = np.random.default_rng(0)
    data = generator.standard_normal((rows, depth)).astype("float32")
    shortcut = generator.standard_normal((rows, columns)).astype("float32")
    weights = generator.standard_normal((depth, columns)).astype("float32")
    target = target_of("x86-64-v3", cores)

    def layer(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.add(op.tanh(op.matmul(x, relax.const(weights, "float32"))), y)

    module = optimized(main_of(layer, data, shortcut), target)
    (function,) = (each for each in module.functions.values() if isinstance(each, tirx.PrimFunc))
    plans = plans_of(function, target)
    computed = run_compiled(server, schedule_rest(module, target), target, (data, shortcut), tmp_path)

    assert plans is not None
    assert plans[0].parts_outside

    expected = np.tanh(data.astype("float64") @ weights.astype("float64")) + shortcut
    assert_close(computed, expected, "float32", depth)


def test_weights_are_stored_packed_only() -> None:
    data = np.ones((7, 50), "float32")
    weights = relax.const(np.ones((50, 37), "float32"), "float32")
    module = scheduled(main_of(lambda x: op.matmul(x, weights), data), target_of("x86-64-v3"))

    constants: list[tuple[int, ...]] = []
    relax.analysis.post_order_visit(
        module["main"],
        lambda node: (
            constants.append(tuple(map(int, node.value.shape)))
            if isinstance(node, tvm.ir.GenericConst)
            else None
        ),
    )
    assert [len(shape) for shape in constants] == [3]


@pytest.mark.parametrize(
    ("width", "columns", "expected"),
    [
        (4, 2, [[0, 1], [2, 3]]),
        (5, 2, [[0, 1], [2, 3], [3, 4]]),
        (2, 4, [[0, 1, -1, -1]]),
    ],
)
def test_panels_overlap_or_are_filled_up(width: int, columns: int, expected: list[list[int]]) -> None:
    matrix = np.arange(1, width + 1, dtype="float32")[None]
    assert (pack_panels(matrix, columns)[:, 0] - 1).tolist() == expected
