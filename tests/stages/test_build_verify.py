from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
import torch
import tvm
from stage_samples import (
    TARGET,
    Function,
    Perceptron,
    capture_module,
    untuned,
)
from torch import nn

from bessemer.contract.capability import lacks, needs_of
from bessemer.contract.problem import ErrorCode
from bessemer.contract.target import ExplicitTarget, resolve_target
from worker.compiler.codegen.imports import imported_functions
from worker.compiler.pipeline.build import build
from worker.compiler.pipeline.verify import verify
from worker.compiler.target import compile_target, missing_features
from worker.compiler.values import Captured, StageContext
from worker.errors import JobError
from worker.job.compiler_warmup import capability
from worker.tensors import as_array


@cache
def perceptron() -> Captured:
    return capture_module(Perceptron(), torch.randn(1, 16))


def test_a_linked_library_imports_only_vm_builtins(context: StageContext) -> None:
    built = build(untuned(perceptron(), context), context)

    assert built.library == context.output / "model.so"
    assert built.library.read_bytes()[:4] == b"\x7fELF"
    assert built.imports
    assert all(name.startswith("vm.builtin.") for name in built.imports)


@pytest.mark.parametrize(
    ("body", "imported"),
    [
        (lambda _, x: torch.topk(x, 2), "tvm.contrib.sort.topk"),
        (lambda _, x: torch.sort(x)[0], "tvm.contrib.sort.argsort"),
    ],
)
def test_functions_that_kernels_call_are_among_the_imports(
    body: Any, imported: str, context: StageContext
) -> None:
    built = build(untuned(capture_module(Function(body), torch.randn(3, 5)), context), context)

    assert imported in built.imports
    assert verify(built, context).comparisons[0].mismatches == 0


@pytest.mark.parametrize(
    "change",
    [
        {"mcpu": "nonsense"},
        {"features": ("+nonsense",)},
        {"triple": "bogus-unknown-linux-gnu"},
        {"triple": "x86_64-unknown-freebsd"},
        {"triple": "x86_64-apple-darwin"},
        {"triple": "x86_64-unknown-linux-gnux32"},
        {"mcpu": "i386"},
        {"features": ("-64bit",)},
        {"features": ("+soft-float",)},
        {"features": ("-sse",)},
        {"features": ("+avx512f", "-avx512f")},
    ],
)
def test_a_target_that_llvm_does_not_know_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(JobError) as raised:
        compile_target(TARGET.model_copy(update=change))

    assert raised.value.code is ErrorCode.BUILD_FAILED


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "znver4"])
@pytest.mark.parametrize("features", [("-avx512f",), ("-avx2",), ("+avx512f", "-avx512vnni")], ids=str)
def test_a_workers_missing_features_match_its_compilers(mcpu: str, features: tuple[str, ...]) -> None:
    target = ExplicitTarget(mcpu=mcpu, features=features)

    assert lacks(capability(), needs_of(target)) == missing_features(
        compile_target(resolve_target(target, mcpu, 1))
    )


class Silent:
    """An executable whose statistics have an unexpected form."""

    def stats(self) -> str:
        return "Relax VM executable"


def test_an_executable_without_a_call_list_is_refused() -> None:
    with pytest.raises(JobError, match="does not say which functions it calls") as raised:
        imported_functions(cast(Any, Silent()), tvm.IRModule())

    assert raised.value.code is ErrorCode.BUILD_FAILED


INTEGERS = torch.arange(9 * 4).reshape(9, 4)
LOOK_UPS: dict[str, tuple[Function, float]] = {
    "embedding": (Function(lambda self, x: self.table(x), table=nn.Embedding(9, 4)), np.nan),
    "embedding-float16": (Function(lambda self, x: self.table(x), table=nn.Embedding(9, 4).half()), np.nan),
    "embedding-bfloat16": (
        Function(lambda self, x: self.table(x), table=nn.Embedding(9, 4).bfloat16()),
        np.nan,
    ),
    "index": (Function(lambda self, x: self.table.weight[x], table=nn.Embedding(9, 4)), np.nan),
    "index-select": (
        Function(lambda self, x: self.table.weight.index_select(0, x), table=nn.Embedding(9, 4)),
        np.nan,
    ),
    "integers": (Function(lambda self, x: self.table[x], table=INTEGERS), 32),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_an_index_beyond_its_table_reads_no_other_memory(name: str, context: StageContext) -> None:
    module, beyond = LOOK_UPS[name]
    built = build(untuned(capture_module(module, torch.tensor([1, 8])), context), context)
    verify(built, context)

    with context.candidates.open_library(built.library, threads=1) as library:
        (rows,) = library.run((np.array([1, 1 << 40]),))

    np.testing.assert_equal(
        rows[0].astype("float32"), as_array(module(torch.tensor([1])))[0].astype("float32")
    )
    np.testing.assert_equal(float(rows[1, 0]), beyond)


def test_an_index_below_zero_counts_from_the_end(context: StageContext) -> None:
    module = Function(lambda self, x: self.table[:, x], table=torch.randn(3, 9))

    built = build(untuned(capture_module(module, torch.tensor([-1, 2, -9])), context), context)

    assert verify(built, context).comparisons[0].mismatches == 0


def test_a_library_for_another_processor_is_built_and_not_run(context: StageContext) -> None:
    target = TARGET.model_copy(
        update={"name": "a72", "mcpu": "cortex-a72", "triple": "aarch64-apple-macos11.0"}
    )
    built = build(untuned(capture_module(Perceptron(), torch.randn(1, 16), target=target), context), context)

    with pytest.raises(JobError, match="cannot be run by any worker here") as raised:
        verify(built, context)

    assert raised.value.code is ErrorCode.TARGET_NOT_RUNNABLE


def test_a_mismatch_names_the_output_and_its_worst_element(context: StageContext) -> None:
    captured = capture_module(Perceptron(), torch.zeros(1, 16))
    wrong = captured.references[0].copy()
    wrong[0, 2] += 1
    built = build(untuned(replace(captured, references=(wrong,)), context), context)

    with pytest.raises(
        JobError, match=r"'output_0': 1 of 4 elements differ; the worst, at \[0, 2\], is"
    ) as raised:
        verify(built, context)

    assert raised.value.code is ErrorCode.VERIFY_MISMATCH


def test_the_requests_own_tolerance_is_in_force(context: StageContext) -> None:
    captured = capture_module(Perceptron(), torch.zeros(1, 16), verify={"absolute": 2.0})
    wrong = (captured.references[0] + 1,)
    built = build(untuned(replace(captured, references=wrong), context), context)

    assert verify(built, context).comparisons[0].mismatches == 0


def test_a_file_that_is_not_a_library_has_its_own_error_code(context: StageContext) -> None:
    built = build(untuned(capture_module(Perceptron(), torch.zeros(1, 16)), context), context)
    built.library.write_bytes(b"\x7fELF")

    with pytest.raises(JobError) as raised:
        verify(built, context)

    assert raised.value.code is ErrorCode.VERIFY_CRASHED


X = torch.arange(6.0).reshape(2, 3) / 7
SHAPES_AND_TYPES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "integers": (
        Function(lambda self, x: self.table(x), table=nn.Embedding(9, 4)),
        (torch.tensor([[1, 8]]),),
    ),
    "several-outputs": (Function(lambda _, x: (x + 1, [x * 2, {"sum": x.sum()}])), (X,)),
    "scalars": (Function(lambda _, x, y: (x * y).sum()), (X, torch.tensor(2.0))),
    "boolean": (Function(lambda _, x, y: (torch.where(y, x, 0.0), y)), (X, X > 0.3)),
    "float64": (Function(lambda self, x: self.layer(x), layer=nn.Linear(3, 2).double()), (X.double(),)),
    "float16": (Function(lambda self, x: self.layer(x), layer=nn.Linear(3, 2).half()), (X.half(),)),
    "bfloat16": (Function(lambda self, x: self.layer(x), layer=nn.Linear(3, 2).bfloat16()), (X.bfloat16(),)),
    "wide-convolution": (
        Function(lambda self, x: self.layer(x), layer=nn.Conv1d(2, 2, 2).double()),
        (X.double()[None],),
    ),
    "counted-booleans": (Function(lambda _, x: torch.cumsum(x > 0.3, 1)), (X,)),
    "an-unused-input": (Function(lambda _, x, y: x + 1), (X, X)),
    "an-input-returned": (Function(lambda _, x: x), (X,)),
    "a-tensor-returned-twice": (Function(lambda _, x: (lambda y: (y, y))(torch.relu(x))), (X,)),
    "a-parameter-returned": (Function(lambda self, x: (self.c, x + 1), c=nn.Parameter(X)), (X,)),
    "not-a-number": (Function(lambda _, x: torch.log(x - 0.4)), (X,)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", SHAPES_AND_TYPES)
def test_models_of_every_shape_and_type_are_verified(name: str, context: StageContext) -> None:
    module, inputs = SHAPES_AND_TYPES[name]

    verified = verify(build(untuned(capture_module(module, *inputs), context), context), context)

    assert [comparison.mismatches for comparison in verified.comparisons] == [0] * len(verified.comparisons)
