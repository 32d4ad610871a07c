"""Functions other than products and convolutions: correct, in a family, without libm calls."""

import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from coverage_samples import GROUPS, Case, Run, run_together
from family_samples import Array, target_of

from worker.candidates.client import CandidateClient

TARGET = target_of("x86-64-v3")

UNCLAIMED = {
    "activations": set[str](),
    "mathematics": set[str](),
    "norms and reductions": {
        # its windows differ in size, so its loops have no constant extent
        "adaptive_avg_pool2d",
    },
    "movement": set[str](),
    "serial": set[str](),
}
"""Functions allowed to have no family, with the reason."""

LIBM = re.compile(
    r"call [^@\n]*@(?:llvm\.)?((?:exp|exp2|erf|erfc|tanh?|pow|log|log2|log10|log1p|expm1|sinh?|cosh?"
    r"|asinh?|acosh?|atanh?|atan2|fmod|hypot|cbrt)f?)(?:\.[vf0-9]+)?\("
)


@pytest.fixture(scope="module", params=GROUPS)
def group(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(group: str, server: CandidateClient, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All functions of a group, compiled as one model at zero trials and run once."""
    torch.manual_seed(0)
    return run_together(server, GROUPS[group], TARGET, tmp_path_factory.mktemp("coverage"))


@pytest.mark.sampled
def test_every_function_agrees_with_torch(group: str, run: Run) -> None:
    pairs = list(zip(run.computed, run.expected, strict=True))
    for case, outputs in each_case(GROUPS[group], pairs):
        for computed, expected in outputs:
            np.testing.assert_allclose(
                computed, expected, rtol=case.tolerance, atol=case.tolerance, err_msg=case.name
            )


def each_case(
    cases: tuple[Case, ...], pairs: list[tuple[Array, Array]]
) -> Iterator[tuple[Case, list[tuple[Array, Array]]]]:
    """The cases with their outputs, of which some have several."""
    for case in cases:
        result = case.function(*case.inputs())
        count = 1 if isinstance(result, torch.Tensor) else len(result)
        yield case, pairs[:count]
        del pairs[:count]


def test_only_the_listed_functions_have_no_family(group: str, run: Run) -> None:
    assert set(run.unclaimed) == UNCLAIMED[group]


def test_no_function_calls_libm(run: Run) -> None:
    assert set(LIBM.findall(run.code)) == set()
