"""Tensor intrinsics: what they compute, and which instructions they become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from space_samples import product
from test_tune_search import HOST, check_outputs, run_tune
from tvm import s_tir

from bessemer.contract.request import TuneOptions
from worker.candidates.client import CandidateClient
from worker.candidates.link import link_shared
from worker.spaces.llvm_ir import KERNELS, compile_kernel, read_kernel
from worker.spaces.registry import space_book
from worker.targets import host_instruction_sets, tvm_target
from worker.warmup import import_everything

FLOATS = ("float32", "float32", "float32")
BYTES = ("int8", "int8", "int32")
MICRO_KERNELS = ("course-micro-kernel-tir", "course-micro-kernel-c", "course-micro-kernel-fma")
AVX2 = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}
VNNI = {"kind": "llvm", "mcpu": "cascadelake", "num-cores": 2}
ARM = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mcpu": "neoverse-n1", "num-cores": 2}


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    import_everything()


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


@pytest.mark.parametrize("space", MICRO_KERNELS)
def test_a_micro_kernel_computes_the_product(space: str, server: CandidateClient, tmp_path: Path) -> None:
    options = TuneOptions(trials=1, spaces={"matmul": space}, force=True)
    tuned, _ = run_tune(server, tmp_path, options)

    (task,) = tuned.result.tasks
    assert (task.space, task.kept) == (space, True)
    assert tuned.records is not None
    assert "sch.tensorize(" in (tuned.records / "matmul.py").read_text()
    check_outputs(server, tuned.module, tmp_path)


@pytest.mark.skipif("avx2" not in host_instruction_sets(HOST.triple), reason="the processor has no AVX2")
def test_products_of_bytes_are_exact(tmp_path: Path) -> None:
    target = tvm_target(HOST)
    built = tvm.tirx.build(tensorized(product(24, 16, 6, BYTES), "dot-avx2", target), target=target)
    generator = np.random.default_rng(0)
    left, right = (generator.integers(-128, 128, shape).astype("int8") for shape in ((24, 6), (6, 16)))
    path = tmp_path / "dots.so"
    built.export_library(str(path), fcompile=link_shared, workspace_dir=str(tmp_path))
    result = tvm.runtime.tensor(np.zeros((24, 16), "int32"))

    tvm.runtime.load_module(str(path))["main"](*map(tvm.runtime.tensor, (left, right)), result)

    np.testing.assert_array_equal(result.numpy(), left.astype("int32") @ right.astype("int32"))


@pytest.mark.parametrize("source", sorted(KERNELS.glob("*.c")), ids=lambda path: path.stem)
def test_the_kernels_that_are_kept_are_those_of_their_sources(source: Path) -> None:
    assert compile_kernel(source) == read_kernel(source.stem)
