"""What is neither a product nor a convolution: right, of some family, without calls of libm."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import tvm
from coverage_samples import GROUPS, Case, Together
from family_samples import Array, source_of, target_of
from stage_samples import capture_module, make_workshop, optimized

from worker.candidates.client import CandidateClient
from worker.candidates.link import link_shared
from worker.schedules.default import schedule_rest, unclaimed_functions

TARGET = target_of("x86-64-v3")

UNCLAIMED = {
    "activations": set[str](),
    "mathematics": set[str](),
    "norms and reductions": {
        # its windows differ in size, so that their loops have no constant extent
        "adaptive_avg_pool2d",
    },
    "movement": set[str](),
    "serial": set[str](),
}
"""What no family may know, and why."""

LIBM = re.compile(
    r"call [^@\n]*@(?:llvm\.)?((?:exp|exp2|erf|erfc|tanh?|pow|log|log2|log10|log1p|expm1|sinh?|cosh?"
    r"|asinh?|acosh?|atanh?|atan2|fmod|hypot|cbrt)f?)(?:\.[vf0-9]+)?\("
)


@dataclass(frozen=True)
class Run:
    """What became of a group of functions."""

    unclaimed: tuple[str, ...]
    calls: frozenset[str]
    computed: tuple[Array, ...]
    expected: tuple[Array, ...]


@pytest.fixture(scope="module", params=GROUPS)
def group(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(group: str, server: CandidateClient, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All functions of a group, compiled as one model at zero trials and run once."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("coverage")
    cases = GROUPS[group]
    inputs = tuple(tensor for case in cases for tensor in case.inputs())
    captured = capture_module(Together(cases), *inputs)
    module = schedule_rest(optimized(captured, make_workshop(folder)).module, TARGET)
    executable = tvm.compile(module, TARGET)
    path = folder / "functions.so"
    executable.export_library(str(path), fcompile=link_shared, workspace_dir=str(folder))
    with server.open_library(path, threads=2) as library:
        computed = library.run(captured.inputs)
    return Run(
        unclaimed=unclaimed_functions(module),
        calls=frozenset(LIBM.findall(source_of(executable.mod))),
        computed=tuple(map(np.asarray, computed)),
        expected=captured.references,
    )


def test_every_function_computes_what_torch_computes(group: str, run: Run) -> None:
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


def test_only_the_known_functions_are_of_no_family(group: str, run: Run) -> None:
    assert set(run.unclaimed) == UNCLAIMED[group]


def test_no_function_of_the_mathematics_library_is_called(run: Run) -> None:
    assert run.calls == set()
