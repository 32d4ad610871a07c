"""Kernel libraries: the operators they take over, their choice, and the results of linked code."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
import torch
from stage_samples import Function, Perceptron, capture_module, compile_to_library, optimized
from torch import nn

from bessemer.contract.problem import ErrorCode
from worker.compiler.extensions import ExtensionError
from worker.compiler.kernels.built_in import openblas
from worker.compiler.kernels.choose import Times, check_choices, choose_kernels
from worker.compiler.kernels.compile import compile_kernels
from worker.compiler.kernels.kernel import OBJECTS, Kernel
from worker.compiler.kernels.registry import POINT, kernel_book, make_kernel_book
from worker.compiler.kernels.uses import Use
from worker.compiler.pipeline.benchmark import benchmark
from worker.compiler.pipeline.package import package
from worker.compiler.pipeline.translate import translate
from worker.compiler.pipeline.verify import verify
from worker.compiler.values import Built, StageContext
from worker.errors import JobError
from worker.package.dependencies import read_dependencies


class Mixed(nn.Module):
    """Linear layers of two widths and a convolution, with fusible and other epilogues."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 8, 3)
        self.first, self.second = nn.Linear(32, 48), nn.Linear(48, 48)
        self.last = nn.Linear(48, 5, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.convolution(x)).flatten(1)
        hidden = torch.relu(self.first(features))
        return self.last(torch.relu(self.second(hidden) + hidden))


IMAGE = torch.randn(3, 2, 4, 4)


def verified(
    module: nn.Module, x: torch.Tensor, kernels: dict[str, str], context: StageContext, **request: object
) -> Built:
    captured = capture_module(module, x, kernels=kernels, **request)
    built = compile_to_library(captured, context)
    assert verify(built, context).comparisons[0].mismatches == 0
    return built


def symbols(built: Built) -> set[str]:
    return {name for name in built.imports if name in kernel_book().kernels}


CHOICES: dict[str, tuple[dict[str, str], set[str]]] = {
    "none": ({"linear": "none", "relu": "none"}, set()),
    "linear": (
        {"linear": "openblas"},
        {"bessemer_openblas_linear", "bessemer_openblas_linear_bias", "bessemer_openblas_linear_bias_relu"},
    ),
    "relu": ({"relu": "c"}, {"bessemer_relu"}),
    "one-workload": (
        {"linear[3x32,32x48,48]": "openblas", "relu": "c"},
        {"bessemer_openblas_linear_bias_relu", "bessemer_relu"},
    ),
    "all-but-one": (
        {"linear": "openblas", "linear[3x32,32x48,48]": "none"},
        {"bessemer_openblas_linear", "bessemer_openblas_linear_bias"},
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CHOICES)
def test_a_request_moves_operators_to_a_kernel_library(name: str, context: StageContext) -> None:
    kernels, expected = CHOICES[name]

    built = verified(Mixed(), IMAGE, kernels, context)

    assert symbols(built) == expected
    choices = built.tuned.optimized.kernels
    assert {choice.symbol for choice in choices if choice.used} == expected
    needed = read_dependencies(built.library).needed
    assert (openblas.LIBRARY in needed) == any("openblas" in symbol for symbol in expected)


def test_kernels_take_separate_parameters(context: StageContext) -> None:
    built = verified(Mixed(), IMAGE, {"linear": "openblas"}, context, parameters="separate")

    assert "bessemer_openblas_linear_bias_relu" in symbols(built)


@pytest.mark.parametrize("shape", [(1, 700), (257, 700), (2, 3, 700)])
def test_large_products_are_shared_among_threads(shape: tuple[int, ...], context: StageContext) -> None:
    layer = Function(lambda self, x: torch.relu(self.layer(x)), layer=nn.Linear(700, 90))

    assert symbols(verified(layer, torch.randn(shape), {"linear": "openblas"}, context))


def test_a_relu_of_nan_is_nan(context: StageContext) -> None:
    x = torch.randn(300, 200)
    x[0, 0] = torch.nan

    assert symbols(verified(Function(lambda _, x: torch.relu(x)), x, {"relu": "c"}, context))


def test_operators_without_a_kernel_keep_our_schedules(context: StageContext) -> None:
    layer = Function(lambda self, x: self.layer(x), layer=nn.Linear(16, 8).double())

    assert not symbols(verified(layer, torch.randn(2, 16).double(), {"linear": "openblas"}, context))


def test_a_result_with_two_readers_is_computed_once(context: StageContext) -> None:
    def twice(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        return torch.relu(hidden) - hidden

    built = verified(
        Function(twice, layer=nn.Linear(8, 8)), torch.randn(2, 8), {"linear": "openblas"}, context
    )

    assert symbols(built) == {"bessemer_openblas_linear_bias"}


@pytest.mark.parametrize(("ratio", "used"), [(0.5, True), (0.92, False), (2.0, False)])
def test_auto_keeps_clearly_faster_kernels_and_measures_each_workload_once(
    ratio: float, used: bool, context: StageContext
) -> None:
    model = Function(lambda self, x: self.b(self.a(x)), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    module = translate(capture_module(model, torch.randn(1, 8)), context).module
    asked: list[str] = []

    def measure(use: Use) -> Times:
        asked.append(use.workload)
        return Times(kernel_ms=ratio, own_ms=1.0, ratio=ratio)

    chosen = choose_kernels(module, {"linear": "auto"}, kernel_book(), measure)

    assert asked == ["linear[1x8,8x8,8]"]
    (choice,) = chosen.choices
    assert (choice.calls, choice.used, choice.kernel_ms, choice.own_ms) == (2, used, ratio, 1.0)


def test_auto_calls_no_library_that_crashes(context: StageContext) -> None:
    module = translate(capture_module(Perceptron(), torch.randn(1, 16)), context).module

    chosen = choose_kernels(module, {"linear": "auto"}, kernel_book(), lambda _: None)

    assert not any(choice.used for choice in chosen.choices)
    assert chosen.module.same_as(module)


def test_auto_times_both_sides_in_processes_of_their_own(context: StageContext) -> None:
    built = verified(Perceptron(), torch.randn(4, 16), {"linear": "auto"}, context)

    choices = built.tuned.optimized.kernels
    assert {choice.workload for choice in choices} == {"linear[4x16,16x8,8]", "linear[4x8,8x4,4]"}
    assert all(choice.kernel_ms and choice.own_ms for choice in choices)


def test_a_kernel_that_cannot_be_linked_is_refused_with_a_reason() -> None:
    with pytest.raises(JobError, match="is not compiled for riscv64") as raised:
        check_choices({"relu": "c"}, kernel_book(), "riscv64")

    assert raised.value.code is ErrorCode.KERNEL_UNAVAILABLE


def test_a_request_for_an_unknown_workload_ends_in_optimize(context: StageContext) -> None:
    kernels = {"linear[9x9,9x9,9]": "none"}
    with pytest.raises(JobError, match=r"no workload 'linear\[9x9,9x9,9\]'; it has linear") as raised:
        optimized(capture_module(Perceptron(), torch.randn(1, 16), kernels=kernels), context)

    assert raised.value.code is ErrorCode.KERNEL_UNKNOWN


def test_every_built_in_kernel_is_compiled(tmp_path: Path) -> None:
    objects = {path.relative_to(tmp_path) for path in compile_kernels(tmp_path)}

    known = kernel_book().kernels.values()
    assert objects == {kernel.object_for("x86_64").relative_to(OBJECTS) for kernel in known}


def point(value: str = "sample_extension:KERNELS") -> EntryPoint:
    return EntryPoint(name="sample", value=value, group=POINT.group)


def test_an_installed_package_adds_kernels(package: ModuleType) -> None:
    own = Kernel("tanh", "mine", ("tanh",), "my_tanh", Path("/nowhere"), "tanh.o", lambda _: True)
    package.KERNELS = (own,)  # type: ignore[attr-defined]

    book = make_kernel_book((point(),))

    assert book.names("tanh") == ("mine",)
    assert book.operators == ("linear", "relu", "tanh")


def test_an_invalid_kernel_is_named(package: ModuleType) -> None:
    package.KERNELS = [1]  # type: ignore[attr-defined]
    for wrong in (point(), point("sample_extension:NOTHING"), point("no_such_package:KERNELS")):
        with pytest.raises(ExtensionError, match=r"of bessemer\.kernels"):
            make_kernel_book((wrong,))


def test_the_bundle_has_the_library_and_its_license_and_runs_without_ours(context: StageContext) -> None:
    captured = capture_module(
        Perceptron(), torch.randn(1, 16), kernels={"linear": "openblas"}, benchmark={"baselines": []}
    )
    built = compile_to_library(captured, context)
    package(benchmark(verify(built, context), context), context)

    bundle = context.output
    assert (bundle / "lib" / openblas.LIBRARY).is_file()
    assert "OpenBLAS" in (bundle / "LICENSES" / "libscipy_openblas" / "LICENSE.txt").read_text()
    command = [sys.executable, str(bundle / "run.py"), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert '"matches_reference": true' in ran.stdout, ran.stderr
