"""Tensor intrinsics: their results and their instructions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from space_samples import calling, product
from stage_samples import Function, capture_module, make_context, optimized
from test_tune_search import HOST
from tvm import s_tir

from worker.candidates.client import CandidateClient
from worker.compiler.codegen.executable import build_library
from worker.compiler.pipeline.tune import tune
from worker.compiler.spaces.llvm_ir import KERNELS, compile_kernel, read_kernel
from worker.compiler.spaces.registry import space_book
from worker.compiler.target import compile_target, host_instruction_sets

pytestmark = pytest.mark.usefixtures("warm")

FLOATS = ("float32", "float32", "float32")
BYTES = ("int8", "int8", "int32")
AVX2 = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}
VNNI = {"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2}
ARM = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mcpu": "neoverse-n1", "num-cores": 2}


def tensorized(module: tvm.IRModule, space: str, target: tvm.target.Target) -> tvm.IRModule:
    schedule = s_tir.Schedule(module, seed=1)
    with target:
        made: Any = space_book().spaces[space].schedule(schedule)
    return made.mod


@pytest.mark.parametrize(
    ("space", "dtypes", "target", "instruction"),
    [
        ("course-micro-kernel-tir", FLOATS, AVX2, "vfmadd"),
        ("course-micro-kernel-c", FLOATS, AVX2, "vfmadd"),
        ("course-micro-kernel-c", FLOATS, ARM, "fmla"),
        ("course-micro-kernel-fma", FLOATS, AVX2, "vfmadd"),
        ("dot-vnni", ("uint8", "int8", "int32"), VNNI, "vpdpbusd"),
        ("dot-sdot", BYTES, ARM, "sdot"),
        ("dot-avx2", BYTES, AVX2, "vpmaddwd"),
    ],
)
def test_an_intrinsic_becomes_its_instruction(
    space: str, dtypes: tuple[str, str, str], target: dict[str, Any], instruction: str
) -> None:
    built_for = tvm.target.Target(target)
    module = tensorized(product(16, 32, 64, dtypes), space, built_for)
    assembly = tvm.tirx.build(module, target=built_for).inspect_source("asm")
    assert f"\t{instruction}" in assembly
    assert "bessemer_update_16x16" not in assembly


@pytest.mark.skipif("avx2" not in host_instruction_sets(HOST.triple), reason="the processor has no AVX2")
@pytest.mark.parametrize(
    ("space", "dtypes"),
    [
        ("course-micro-kernel-tir", FLOATS),
        ("course-micro-kernel-c", FLOATS),
        ("course-micro-kernel-fma", FLOATS),
        ("dot-avx2", BYTES),
    ],
)
def test_an_intrinsic_computes_the_product(
    space: str, dtypes: tuple[str, str, str], server: CandidateClient, tmp_path: Path
) -> None:
    target = compile_target(HOST).llvm
    module = calling(tensorized(product(32, 48, 64, dtypes), space, target))
    build_library(module, target, tmp_path / "model.so", tmp_path)
    generator = np.random.default_rng(0)
    left, right = (
        generator.integers(-128, 128, shape).astype(dtype)
        for shape, dtype in zip(((32, 64), (64, 48)), dtypes, strict=False)
    )

    with server.open_library(tmp_path / "model.so", threads=2) as library:
        (result,) = library.run((left, right))

    np.testing.assert_array_equal(result, left.astype(dtypes[2]) @ right.astype(dtypes[2]))


@pytest.mark.skipif("avx2" not in host_instruction_sets(HOST.triple), reason="the processor has no AVX2")
def test_a_model_of_bytes_reaches_its_dot_product(server: CandidateClient, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randint(-128, 128, shape, dtype=torch.int8, generator=generator)
        for shape in ((32, 64), (64, 48))
    )
    model = Function(lambda _, data: torch._int_mm(data, weight))
    asked = {"trials": 1, "spaces": {"*": "dot-avx2"}, "force": True}
    target = HOST.model_copy(update={"mcpu": "x86-64-v3"})
    captured = capture_module(model, x, target=target, tune=asked)

    tuned = tune(optimized(captured, make_context(tmp_path)), make_context(tmp_path, server))
    build_library(tuned.module, compile_target(target).llvm, tmp_path / "model.so", tmp_path)
    with server.open_library(tmp_path / "model.so", threads=2) as library:
        (result,) = library.run(captured.inputs)

    np.testing.assert_array_equal(result, captured.references[0])
    assert [(task.space, task.kept) for task in tuned.result.tasks] == [("dot-avx2", True)]


@pytest.mark.parametrize("source", sorted(KERNELS.glob("*.c")), ids=lambda path: path.stem)
def test_the_stored_kernels_match_their_sources(source: Path) -> None:
    assert compile_kernel(source) == read_kernel(source.stem)
