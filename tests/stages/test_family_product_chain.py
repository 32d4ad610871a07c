"""Two products right behind each other agree with numpy, and are one function where that pays."""

from dataclasses import dataclass, replace
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
    run_compiled,
    scheduled,
    target_of,
)
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.schedules.families.matmul import chain
from worker.compiler.schedules.families.matmul.chain import ProductChainPlan

op = relax.op

ACTIVATIONS = ("gelu", "relu", "silu")


@dataclass(frozen=True)
class FeedForward:
    """Two linear layers with an activation between them. The hidden matrix exceeds 512 KiB, twice L2."""

    rows: tuple[int, ...] = (1, 601)
    inputs: int = 24
    hidden: int = 256
    outputs: int = 40
    activation: str = "gelu"
    has_bias: bool = True
    adds_input: bool = False
    dtype: str = "float32"


feed_forwards = st.builds(
    FeedForward,
    rows=st.sampled_from([(601,), (1, 570), (2, 7, 43), (3, 197), (1100,)]),
    inputs=st.integers(2, 50),
    hidden=st.sampled_from([256, 257, 300, 400]),
    outputs=st.integers(8, 70),
    activation=st.sampled_from(ACTIVATIONS),
    has_bias=st.booleans(),
    dtype=st.sampled_from(["float32", "float32", "float64"]),
)


def constants_of(case: FeedForward) -> tuple[Array, ...]:
    random = np.random.default_rng(0)
    sizes = [(case.inputs, case.hidden), (case.hidden,), (case.hidden, case.outputs), (case.outputs,)]
    return tuple((random.standard_normal(size) / 4).astype(case.dtype) for size in sizes)


def input_of(case: FeedForward) -> Array:
    return np.random.default_rng(1).standard_normal((*case.rows, case.inputs)).astype(case.dtype)


def module_of(case: FeedForward, reads_hidden: bool = False) -> tvm.IRModule:
    first, first_bias, second, second_bias = (relax.const(each, case.dtype) for each in constants_of(case))

    def linear(x: relax.Expr, weights: relax.Expr, bias: relax.Expr) -> relax.Expr:
        result = op.matmul(x, weights)
        return op.add(result, bias) if case.has_bias else result

    def compute(x: relax.Expr) -> relax.Expr:
        hidden = followed_by(linear(x, first, first_bias), case.activation)
        result = linear(hidden, second, second_bias)
        if case.adds_input:
            result = op.add(result, x)
        return op.add(result, op.mean(hidden)) if reads_hidden else result

    return main_of(compute, input_of(case))


def expected_of(case: FeedForward) -> Array:
    x, (first, first_bias, second, second_bias) = (
        torch.from_numpy(input_of(case)).double(),
        (torch.from_numpy(each).double() for each in constants_of(case)),
    )
    hidden = exactly_followed_by(x @ first + case.has_bias * first_bias, case.activation)
    return (hidden @ second + case.has_bias * second_bias + (x if case.adds_input else 0)).numpy()


def check(server: CandidateClient, case: FeedForward, mcpu: str, folder: Path) -> tvm.IRModule:
    target = target_of(mcpu)
    module = scheduled(module_of(case), target)

    assert unclaimed_functions(module) == ()
    actual = run_compiled(server, module, target, (input_of(case),), folder)
    tolerance = 1e-5 if case.dtype == "float32" else 1e-12
    expected = expected_of(case)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    return module


def products_of(module: tvm.IRModule) -> int:
    """The functions with products."""
    names = (str(variable.name_hint) for variable in module.get_global_vars())
    return sum("matmul" in name or "linear" in name for name in names)


@fuzz(8)
@given(case=feed_forwards, mcpu=st.sampled_from(TARGETS))
def test_products_behind_each_other_are_right(
    server: CandidateClient, tmp_path: Path, case: FeedForward, mcpu: str
) -> None:
    assert products_of(check(server, case, mcpu, tmp_path)) == 1


def test_the_result_of_a_residual_layer_is_right(server: CandidateClient, tmp_path: Path) -> None:
    module = check(server, FeedForward(inputs=40, adds_input=True), "x86-64-v3", tmp_path)

    assert products_of(module) == 1


@pytest.mark.parametrize(
    ("case", "reads_hidden"),
    [
        (FeedForward(), True),
        (FeedForward(rows=(1, 400)), False),
        (FeedForward(inputs=800), False),
    ],
    ids=[
        "others read the hidden matrix",
        "the hidden matrix is not much larger than L2",
        "the weights outgrow L2",
    ],
)
def test_products_stay_apart_where_joining_does_not_pay(case: FeedForward, reads_hidden: bool) -> None:
    module = scheduled(module_of(case, reads_hidden), target_of("x86-64-v3"))

    assert products_of(module) == 2


@pytest.mark.parametrize(
    "plan",
    [ProductChainPlan(1, True), ProductChainPlan(7, False), ProductChainPlan(601, True)],
    ids=["a row", "less than a tile", "all rows"],
)
def test_every_plan_is_right(
    server: CandidateClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: ProductChainPlan
) -> None:
    monkeypatch.setattr(chain, "product_chain_plans", lambda *_: (plan,))

    check(server, FeedForward(), "x86-64-v3", tmp_path)


def test_three_products_are_right(server: CandidateClient, tmp_path: Path) -> None:
    case = replace(FeedForward(), activation="relu")
    first, _, second, _ = constants_of(case)
    target, data = target_of("x86-64-v3"), input_of(case)
    weights = (first, second, second.T, second)

    def compute(x: relax.Expr) -> relax.Expr:
        for each in weights:
            x = op.nn.relu(op.matmul(x, relax.const(np.ascontiguousarray(each))))
        return x

    module = scheduled(main_of(compute, data), target)

    expected = data.astype(np.float64)
    for each in weights:
        expected = np.maximum(expected @ each.astype(np.float64), 0)
    actual = run_compiled(server, module, target, (data,), tmp_path)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * expected.max())
