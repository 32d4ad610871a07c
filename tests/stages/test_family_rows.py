"""Softmax, normalizations and reductions of all shapes agree with numpy in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_samples import TARGETS, Array, fuzz, main_of, run_compiled, scheduled, target_of
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import unclaimed_functions

TOLERANCES = {"float32": 2e-5, "float64": 1e-12}
EPSILON = 1e-5
op = relax.op


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON)


def norm_in_relax(x: Any) -> Any:
    size, dtype = int(x.ty.shape[-1]), str(x.ty.dtype)
    if dtype == "float64":  # Relax has no norm of these
        deviation = op.sqrt(op.add(op.variance(x, axis=-1, keepdims=True), relax.const(EPSILON, dtype)))
        return op.divide(op.subtract(x, op.mean(x, axis=-1, keepdims=True)), deviation)
    gamma, beta = (relax.const(np.full(size, value, dtype), dtype) for value in (1.0, 0.0))
    return op.nn.layer_norm(x, gamma, beta, axes=[-1], epsilon=EPSILON)


OPERATORS: dict[str, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    "softmax": (lambda x: op.nn.softmax(x, axis=-1), softmax),
    "log-softmax": (lambda x: op.nn.log_softmax(x, axis=-1), lambda x: np.log(softmax(x))),
    "softmax-relu": (lambda x: op.nn.relu(op.nn.softmax(x, axis=-1)), softmax),
    "layer-norm": (norm_in_relax, layer_norm),
    "layer-norm-tanh": (lambda x: op.tanh(norm_in_relax(x)), lambda x: np.tanh(layer_norm(x))),
    "sum": (lambda x: op.sum(x, axis=-1), lambda x: x.sum(-1)),
    "mean": (lambda x: op.mean(x, axis=-1, keepdims=True), lambda x: x.mean(-1, keepdims=True)),
    "max": (lambda x: op.max(x, axis=-1), lambda x: x.max(-1)),
    "min": (lambda x: op.min(x, axis=-1), lambda x: x.min(-1)),
    "variance": (lambda x: op.variance(x, axis=-1), lambda x: x.var(-1)),
}


@dataclass(frozen=True)
class Rows:
    """An operator along the last dimension of a tensor."""

    operator: str
    rows: tuple[int, ...]
    columns: int
    dtype: str


cases = st.builds(
    Rows,
    operator=st.sampled_from(sorted(OPERATORS)),
    rows=st.sampled_from([(1,), (2,), (7,), (3, 5), (1, 2, 9), (64,)]),
    columns=st.sampled_from([2, 3, 8, 13, 32, 33, 64, 100, 257]),
    dtype=st.sampled_from(["float32", "float32", "float64"]),
)


@pytest.mark.slow
@fuzz(12)
@given(mcpu=st.sampled_from(TARGETS), case=cases)
def test_an_operator_along_rows_agrees_with_numpy(
    server: CandidateClient, tmp_path: Path, mcpu: str, case: Rows
) -> None:
    generator = np.random.default_rng(0)
    data = generator.standard_normal((*case.rows, case.columns)).astype(case.dtype)
    build, exact = OPERATORS[case.operator]

    module = scheduled(main_of(build, data), target_of(mcpu))
    computed = run_compiled(server, module, target_of(mcpu), (data,), tmp_path)

    assert unclaimed_functions(module) == ()
    tolerance = TOLERANCES[case.dtype]
    np.testing.assert_allclose(computed, exact(data.astype("float64")), rtol=tolerance, atol=tolerance)
