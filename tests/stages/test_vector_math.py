"""The vector functions against numpy's extended precision, whose format must be wider than float64."""

from collections.abc import Callable, Iterator
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
from family_samples import Array, main_of, run_compiled, scheduled, target_of
from tvm import relax, tirx

from worker.candidates.client import CandidateClient
from worker.candidates.server import fork_server
from worker.schedules.vector_math import RULES
from worker.targets import host_mcpu

TARGET = target_of(host_mcpu())
NUMBERS = 1 << 15
LIMITS = {"exp": (2, 2), "log": (2, 2), "tanh": (2, 2), "sigmoid": (3, 3), "erf": (5, 3)}
"""Units in the last place, for float32 and float64: the table of the module's docstring."""

EXACT: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: torch.erf(torch.from_numpy(x.astype("float64"))).numpy(),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CandidateClient]:
    with fork_server(tmp_path_factory.mktemp("server")) as client:
        yield client


def arguments(name: str, dtype: str) -> Array:
    """Numbers near zero, of moderate size, near overflow and underflow, and of every exponent."""
    generator = np.random.default_rng(0)
    largest = 104 if dtype == "float32" else 746
    numbers = np.concatenate(
        [
            generator.uniform(-1, 1, NUMBERS),
            generator.uniform(-12, 12, NUMBERS),
            generator.uniform(-largest, largest, NUMBERS),
            np.exp(generator.uniform(-80, 80, NUMBERS)) * generator.choice([-1, 1], NUMBERS),
        ]
    )
    return np.abs(numbers).astype(dtype) if name == "log" else numbers.astype(dtype)


def apply(server: CandidateClient, folder: Path, name: str, numbers: Array) -> Array:
    module = scheduled(main_of(getattr(relax.op, name), numbers), TARGET)
    return run_compiled(server, module, TARGET, (numbers,), folder)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LIMITS)
def test_the_error_is_within_the_stated_units_in_the_last_place(
    server: CandidateClient, tmp_path: Path, name: str, dtype: str
) -> None:
    numbers = arguments(name, dtype)
    with np.errstate(over="ignore", under="ignore"):
        exact = EXACT[name](numbers.astype(np.longdouble)).astype(np.longdouble)
        normal = (np.abs(exact) >= np.finfo(dtype).tiny) & (np.abs(exact) <= np.finfo(dtype).max)
    computed = apply(server, tmp_path, name, numbers)[normal].astype(np.longdouble)
    units = np.abs(computed - exact[normal]) / np.spacing(np.abs(exact[normal]).astype(dtype))

    assert units.max() <= LIMITS[name][dtype == "float64"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LIMITS)
def test_special_numbers_come_out_as_from_the_library(
    server: CandidateClient, tmp_path: Path, name: str, dtype: str
) -> None:
    numbers = np.array([0.0, -0.0, inf, -inf, nan, -1e30, 1e30, 1e-30], dtype)
    numbers = np.resize(numbers, 64)
    with np.errstate(all="ignore"):
        expected = EXACT[name](numbers.astype("float64")).astype(dtype)
    computed = apply(server, tmp_path, name, numbers)

    np.testing.assert_allclose(computed, expected, rtol=1e-6)


@pytest.mark.parametrize("exponent", [1, 2, 3, 4])
def test_a_power_with_a_small_exponent_is_a_product(
    server: CandidateClient, tmp_path: Path, exponent: int
) -> None:
    numbers = np.linspace(-3, 3, 64, dtype="float32")
    module = scheduled(
        main_of(lambda x: relax.op.power(x, relax.const(float(exponent), "float32")), numbers), TARGET
    )

    assert "T.pow" not in module.script()
    computed = run_compiled(server, module, TARGET, (numbers,), tmp_path)
    np.testing.assert_allclose(computed, numbers**exponent, rtol=1e-6)


def test_no_other_call_is_touched() -> None:
    assert {tvm.ir.Op.get(name).name for name in RULES} == set(RULES)
    assert "tirx.sqrt" not in RULES
    assert tirx.sqrt(tirx.Var("x", "float32")).op.name == "tirx.sqrt"
