"""The vector functions against numpy's extended precision, whose format must be wider than float64."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from family_samples import Array, main_of, run_compiled, scheduled, target_of
from tvm import relax, te, tirx

from worker.candidates.client import CandidateClient
from worker.compiler.codegen.link import link_shared
from worker.compiler.schedules import nest
from worker.compiler.schedules.vector_math import RULES, with_vector_math
from worker.compiler.target import host_mcpu

TARGET = target_of(host_mcpu())
NUMBERS = 1 << 15
SPECIAL = 50
AT_OVERFLOW = (88.72283172607422, 89.41598510742188, 709.782712893384, 710.4758600739439)
"""The greatest numbers whose exponentials, and whose hyperbolic sines, are finite: float32, then float64."""


@dataclass(frozen=True)
class Result:
    """Arguments and results of a compiled function."""

    inputs: tuple[Array, ...]
    computed: Array

    def units(self, exact: Callable[..., Array]) -> float:
        """The greatest error in units in the last place, over results that are normal numbers."""
        dtype = self.computed.dtype
        with np.errstate(all="ignore"):
            wanted = exact(*(array.astype(np.longdouble) for array in self.inputs)).astype(np.longdouble)
            normal = (np.abs(wanted) >= np.finfo(dtype).tiny) & (np.abs(wanted) <= np.finfo(dtype).max)
            wanted = wanted[normal]
            error = np.abs(self.computed[normal].astype(np.longdouble) - wanted)
            return float((error / np.spacing(np.abs(wanted).astype(dtype))).max())


LIMITS = {
    "acos": (4, 4),
    "acosh": (4, 4),
    "asin": (4, 4),
    "asinh": (4, 4),
    "atan": (3, 3),
    "atan2": (4, 4),
    "atanh": (4, 4),
    "cos": (3, 3),
    "cosh": (3, 3),
    "erf": (5, 3),
    "exp": (2, 2),
    "exp2": (2, 2),
    "log": (2, 2),
    "log10": (2, 3),
    "log1p": (4, 4),
    "log2": (2, 3),
    "sigmoid": (3, 3),
    "sin": (3, 3),
    "sinh": (4, 4),
    "tan": (4, 4),
    "tanh": (3, 3),
}
"""Units in the last place, for float32 and float64: the table of the module's docstring."""
POWER_LIMIT = 1
OF_FLOAT32 = ("fmod", "pow")

EXACT: dict[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in LIMITS if hasattr(np, name)},
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: torch.erf(torch.from_numpy(x.astype("float64"))).numpy(),
}
PAIRS = ("atan2", "fmod", "pow")
WITHIN_ONE = ("acos", "asin", "atanh")
POSITIVE = ("log", "log2", "log10", "log1p", "acosh")
ANGLES = ("sin", "cos", "tan")


@pytest.fixture(scope="module", params=["float32", "float64"])
def results(
    request: pytest.FixtureRequest, server: CandidateClient, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Result]:
    """The results of all functions by name, from one library."""
    dtype = str(request.param)
    names = [*LIMITS, *(OF_FLOAT32 if dtype == "float32" else ())]
    inputs = {name: arguments(name, dtype) for name in names}
    folder = tmp_path_factory.mktemp("functions")
    path = folder / "functions.so"
    tvm.compile(module_of(inputs), TARGET).export_library(
        str(path), fcompile=link_shared, workspace_dir=str(folder)
    )
    with server.open_library(path, threads=2) as library:
        outputs = library.run(tuple(array for arrays in inputs.values() for array in arrays))
    return {
        name: Result(inputs[name], np.asarray(output)) for name, output in zip(names, outputs, strict=True)
    }


def module_of(inputs: dict[str, tuple[Array, ...]]) -> tvm.IRModule:
    """A module whose ``main`` calls each function with its own arguments, scheduled."""
    builder = relax.BlockBuilder()
    variables = {
        name: [
            relax.Var(f"{name}{index}", relax.TensorType(array.shape, str(array.dtype)))
            for index, array in enumerate(arrays)
        ]
        for name, arrays in inputs.items()
    }
    with builder.function("main", [variable for group in variables.values() for variable in group]):
        with builder.dataflow():
            calls = [
                builder.emit(builder.call_te(elementwise(name), *group)) for name, group in variables.items()
            ]
            output = builder.emit_output(relax.Tuple(calls))
        builder.emit_func_output(output)
    return scheduled(builder.get(), TARGET)


def elementwise(name: str) -> Callable[..., te.Tensor]:
    """A function of TensorIR for every element."""

    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(
            tensors[0].shape, lambda *at: getattr(tirx, name)(*(tensor[at] for tensor in tensors)), name=name
        )

    return compute


def arguments(name: str, dtype: str) -> tuple[Array, ...]:
    """Special numbers, then ones near zero, of moderate size, near overflow, and of every exponent."""
    generator = np.random.default_rng(0)
    largest = 104 if dtype == "float32" else 746
    special = np.resize([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, -1e30, 1e30, 1e-30, *AT_OVERFLOW], SPECIAL)
    if name in ("atan2", "fmod"):
        pair = generator.standard_normal((2, NUMBERS)) * np.exp(generator.uniform(-9, 9, (2, NUMBERS)))
        one, other = np.meshgrid(special[:10], special[:10])
        return tuple(
            np.concatenate([given.ravel(), part]).astype(dtype)
            for given, part in zip((one, other), pair, strict=True)
        )
    if name == "pow":
        bases, exponents = np.exp(generator.uniform(-8, 8, NUMBERS)), generator.uniform(-8, 8, NUMBERS)
        whole = generator.integers(-5, 6, NUMBERS)
        given = np.meshgrid([0.0, 1.0, -1.0, inf, -2.0, 0.5, nan], [0.0, 1.0, 2.0, 3.0, -2.0, inf, -inf, 0.3])
        return (
            np.concatenate([given[0].ravel(), bases, -bases]).astype(dtype),
            np.concatenate([given[1].ravel(), exponents, whole]).astype(dtype),
        )
    if name in WITHIN_ONE:
        numbers = np.concatenate([generator.uniform(-1, 1, NUMBERS), generator.uniform(-1e-3, 1e-3, NUMBERS)])
    elif name in ANGLES:
        numbers = np.concatenate([generator.uniform(-12, 12, NUMBERS), generator.uniform(-1e5, 1e5, NUMBERS)])
    else:
        numbers = np.concatenate(
            [
                generator.uniform(-1, 1, NUMBERS),
                generator.uniform(-12, 12, NUMBERS),
                generator.uniform(-largest, largest, NUMBERS),
                np.exp(generator.uniform(-80, 80, NUMBERS)) * generator.choice([-1, 1], NUMBERS),
            ]
        )
    numbers = np.abs(numbers) if name in POSITIVE else numbers
    special = special if name not in ANGLES else np.where(np.abs(special) > 1, nan, special)
    return (np.concatenate([special, numbers]).astype(dtype),)


@pytest.mark.parametrize("name", LIMITS)
def test_the_error_is_within_the_stated_units_in_the_last_place(
    results: dict[str, Result], name: str
) -> None:
    result = results[name]
    assert result.units(EXACT[name]) <= LIMITS[name][result.computed.dtype == "float64"]


@pytest.mark.parametrize("name", LIMITS)
def test_special_numbers_agree_with_numpy(results: dict[str, Result], name: str) -> None:
    result = results[name]
    inputs = [array[:SPECIAL] for array in result.inputs]
    with np.errstate(all="ignore"):
        expected = EXACT[name](*(array.astype("float64") for array in inputs)).astype(result.computed.dtype)

    np.testing.assert_allclose(result.computed[:SPECIAL], expected, rtol=1e-6)


@pytest.mark.parametrize("results", ["float32"], indirect=True)
def test_a_remainder_of_float32_is_exact(results: dict[str, Result]) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(results["fmod"].computed, np.fmod(*results["fmod"].inputs))


@pytest.mark.parametrize("name", ["exp", "exp2", "sigmoid"])
def test_a_denormal_exponential_is_zero(results: dict[str, Result], name: str) -> None:
    (inputs,), computed = results[name].inputs, results[name].computed
    with np.errstate(over="ignore"):
        exact = EXACT[name](inputs.astype(np.longdouble))
    tiny = np.finfo(computed.dtype).tiny
    assert (computed[exact < tiny] == 0).all()
    assert (computed[exact >= 2 * tiny] >= tiny).all()


@pytest.mark.parametrize("results", ["float32"], indirect=True)
def test_a_power_of_float32_goes_through_float64(results: dict[str, Result]) -> None:
    assert results["pow"].units(np.power) <= POWER_LIMIT
    bases, exponents = (array[:SPECIAL] for array in results["pow"].inputs)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(results["pow"].computed[:SPECIAL], np.power(bases, exponents), rtol=1e-6)


@pytest.mark.parametrize("exponent", [-2, -1, 1, 2, 3, 4])
def test_a_power_with_a_small_exponent_is_a_product(
    server: CandidateClient, tmp_path: Path, exponent: int
) -> None:
    numbers = np.linspace(0.1, 3, 64, dtype="float32")
    module = scheduled(
        main_of(lambda x: relax.op.power(x, relax.const(float(exponent), "float32")), numbers), TARGET
    )

    assert "T.pow" not in module.script()
    computed = run_compiled(server, module, TARGET, (numbers,), tmp_path)
    np.testing.assert_allclose(computed, numbers**exponent, rtol=1e-6)


def test_rules_match_calls_by_name() -> None:
    x = tirx.Var("x", "float32")
    for name in RULES:
        function = name.rpartition(".")[2]
        assert getattr(tirx, function)(*([x, x] if function in PAIRS else [x])).op.name == name
    assert "tirx.sqrt" not in RULES


def padded(x: te.Tensor, i: tirx.Var, function: Callable[..., object] = lambda value: value) -> object:
    """A function of the previous element, or zero for the first."""
    return tirx.if_then_else(i > 0, function(x[i - 1]), 0.0)


@pytest.mark.parametrize(
    ("guard", "terms"),
    [
        (lambda x, i: tirx.Select(x[i] > 0, x[i], tirx.exp(x[i] / 3)), True),
        (lambda x, i: tirx.Select(x[i // 4] > 0, x[i // 4], tirx.exp(x[i // 4])), True),
        (lambda x, i: tirx.Select(x[i] > 0, x[i], tirx.exp(x[i] / x[39])), True),
        (lambda x, i: tirx.Select(x[i] > 0, x[i], tirx.exp(x[i] / x[40])), False),
        (lambda x, i: tirx.Select(padded(x, i) > 0, x[i], tirx.exp(padded(x, i))), True),
        (lambda x, i: tirx.Select(padded(x, i) > 0, 0.0, tirx.exp(padded(x, i))), True),
        (lambda x, i: tirx.Select(padded(x, i) > 0, tirx.exp(x[i - 1]), 0.0), False),
        (lambda x, i: tirx.Select(i > 0, tirx.exp(x[i - 1]), 0.0), False),
        (lambda x, i: tirx.Select(x[i] > 0, x[i], tirx.exp(tirx.Cast("float32", 7 // i))), False),
    ],
    ids=[
        "its condition reads it",
        "a quotient by four",
        "one element that there is",
        "one element that there is not",
        "another choice guards it",
        "its condition reads it where it may",
        "its condition reads it in a branch",
        "what is outside",
        "a quotient by zero",
    ],
)
def test_a_branch_that_guards_a_read_is_a_statement(guard: Callable[..., object], terms: bool) -> None:
    x = te.placeholder((40,), "float32", "x")
    y = te.compute((40,), lambda i: guard(x, i), "y")

    code = with_vector_math(te.create_prim_func([x, y])).script()

    assert "term" in code
    assert "Let(" not in code
    assert ("chosen" in code) is not terms


@pytest.mark.parametrize(
    "guarded",
    [lambda x, i: padded(x, i, tirx.tanh), lambda x, i: tirx.Select(i > 0, tirx.tanh(x[i - 1]), 0.0)],
    ids=["if_then_else", "select"],
)
def test_a_branch_within_an_argument_keeps_its_guard(guarded: Callable[..., object]) -> None:
    x = te.placeholder((40,), "float32", "x")
    y = te.compute((40,), lambda i: tirx.exp(guarded(x, i)), "y")

    body = with_vector_math(te.create_prim_func([x, y])).body
    branches: list[tirx.IfThenElse] = []
    tvm_ffi.structural_walk(body, (tirx.IfThenElse, lambda branch: branches.append(branch)))

    assert [str(branch.condition) for branch in branches] == ["0 < v_i"]
    assert loads_of_x(branches[0].then_case) == loads_of_x(body) == 1


def loads_of_x(node: object) -> int:
    return sum(load.source.name == "x" for load in nest.loads_of(node))
