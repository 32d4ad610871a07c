"""Products of bytes and of bfloat16 by instructions that multiply groups of numbers."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import pytest
import torch
import tvm
from family_samples import main_of, outputs_compiled, scheduled, target_of
from platform_samples import bundle_of, innermost_loops, preset, skip_unless_it_runs
from stage_samples import capture_module, compile_to_library
from torch import nn
from tvm import relax, tirx

from bessemer.contract.triple import LINUX_AARCH64, LINUX_X86_64
from worker.candidates.client import CandidateClient
from worker.compiler.codegen.generate import write_object
from worker.compiler.layout.pack_linear import pack_panels, pack_panels_tensor
from worker.compiler.schedules.default import unclaimed_functions
from worker.compiler.schedules.processors import machine_of
from worker.compiler.target import host_instruction_sets
from worker.compiler.values import StageContext

SHAPES = (
    (1, 64, 40),
    (2, 7, 8),
    (3, 8, 3),
    (7, 31, 13),
    (16, 100, 24),
    (33, 65, 1),
    (5, 1, 70),
    (4, 2051, 9),
)
"""Rows, depth, columns."""
LEAST_MULTIPLY_ADDS = {1: 8, 64: 14}
LEAST_SHARE = 0.35
op = relax.op


class Bytes(nn.Module):
    """Products of bytes by constant matrices, and by one that is an input."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for number, (_, depth, columns) in enumerate(SHAPES):
            weight = torch.randint(-128, 128, (depth, columns), dtype=torch.int8, generator=generator)
            self.register_buffer(f"weight{number}", weight)
        self.dtype = dtype

    def inputs(self) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        low, high = torch.iinfo(self.dtype).min, torch.iinfo(self.dtype).max + 1
        return tuple(
            torch.randint(low, high, (rows, depth), dtype=self.dtype, generator=generator)
            for rows, depth, _ in SHAPES
        )

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = [torch._int_mm(x, self.get_buffer(f"weight{n}")) for n, x in enumerate(inputs)]
        return (*results, torch._int_mm(inputs[4], inputs[4].view(torch.int8).T))


class Brains(nn.Module):
    """Linear layers in bfloat16, and a product of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(depth, columns) for _, depth, columns in SHAPES).bfloat16()

    def inputs(self) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1)
        shapes = [(rows, depth) for rows, depth, _ in SHAPES]
        return tuple(torch.randn(shape, generator=generator).bfloat16() for shape in shapes)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = [layer(x).relu() for layer, x in zip(self.layers, inputs, strict=True)]
        return (*results, inputs[4] @ inputs[4].T)


@pytest.mark.parametrize(
    ("mcpu", "left", "right", "sums", "instruction"),
    [
        ("neoverse-v1", "int8", "int8", "int32", "smmla"),
        ("neoverse-v2", "uint8", "uint8", "int32", "ummla"),
        ("neoverse-n2", "uint8", "int8", "int32", "usmmla"),
        ("apple-m2", "int8", "int8", "int32", "smmla"),
        ("neoverse-n1", "int8", "int8", "int32", "sdot"),
        ("cortex-a76", "uint8", "uint8", "int32", "udot"),
        ("neoverse-v1", "bfloat16", "bfloat16", "float32", "bfmmla"),
        ("neoverse-v2", "bfloat16", "bfloat16", "float32", "bfmmla"),
    ],
)
@pytest.mark.parametrize("rows", [1, 64])
def test_an_inner_loop_multiplies_groups_in_registers(
    rows: int, mcpu: str, left: str, right: str, sums: str, instruction: str, tmp_path: Path
) -> None:
    target = tvm.target.Target({"kind": "llvm", "mtriple": LINUX_AARCH64, "mcpu": mcpu, "num-cores": 2})
    data, weights = np.ones((rows, 512), left), np.ones((512, 256), right)
    product = main_of(lambda x: op.matmul(x, relax.const(weights, right), out_dtype=sums), data)
    functions = {
        str(variable.name_hint): function.with_attr("global_symbol", str(variable.name_hint))
        for variable, function in scheduled(product, target).functions_items()
        if isinstance(function, tirx.PrimFunc)
    }

    write_object(tvm.IRModule(functions), target, tmp_path / "kernels.o", with_sources=True)

    assembly = (tmp_path / "kernels.s").read_text()
    best = innermost_loops(assembly, "aarch64 groups")[0]
    assert f"\t{instruction}" in assembly
    assert best.multiply_adds >= LEAST_MULTIPLY_ADDS[rows]
    assert best.multiply_adds >= LEAST_SHARE * best.instructions
    assert best.stack == 0


@pytest.mark.parametrize(
    ("mcpu", "features", "left", "right"),
    [
        ("cortex-a72", (), "int8", "int8"),
        ("neoverse-n1", (), "uint8", "int8"),
        ("neoverse-v1", (), "int8", "uint8"),
        ("neoverse-v1", ("-bf16",), "bfloat16", "bfloat16"),
        ("neoverse-v1", (), "int16", "int16"),
    ],
)
def test_other_products_multiply_numbers_one_by_one(
    mcpu: str, features: tuple[str, ...], left: str, right: str
) -> None:
    config = {"kind": "llvm", "mtriple": LINUX_AARCH64, "mcpu": mcpu, "num-cores": 2}
    machine = machine_of(tvm.target.Target(config | ({"mattr": list(features)} if features else {})))

    assert machine.find_dot(left, right, "float32" if "float" in left else "int32") is None


def test_panels_of_groups_are_filled_up_with_zeros() -> None:
    matrix = np.arange(1, 16, dtype="int8").reshape(3, 5)

    (first, second) = pack_panels(matrix, columns=4, group=2)

    assert first.tolist() == [[1, 6, 2, 7, 3, 8, 4, 9], [11, 0, 12, 0, 13, 0, 14, 0]]
    assert second.tolist() == [[2, 7, 3, 8, 4, 9, 5, 10], [12, 0, 13, 0, 14, 0, 15, 0]]


@pytest.mark.parametrize(("depth", "width", "columns", "group"), [(3, 5, 4, 2), (8, 3, 4, 4), (4, 8, 4, 1)])
def test_weights_are_packed_alike_before_and_at_run_time(
    depth: int, width: int, columns: int, group: int, server: CandidateClient, tmp_path: Path
) -> None:
    matrix = np.arange(depth * width, dtype="int32").reshape(depth, width)
    target = target_of("x86-64-v2")

    def packed(x: relax.Expr) -> relax.Expr:
        return relax.BlockBuilder.current().call_te(pack_panels_tensor(columns, group), x)

    module = scheduled(main_of(packed, matrix), target)
    (result,) = outputs_compiled(server, module, target, (matrix,), tmp_path)

    np.testing.assert_array_equal(result, pack_panels(matrix, columns, group))


@pytest.mark.skipif(
    "avx512vnni" not in host_instruction_sets(LINUX_X86_64), reason="the processor has no AVX-512 VNNI"
)
@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("is_constant", [True, False])
def test_products_of_any_number_of_rows_are_right(
    is_constant: bool, rows: int, server: CandidateClient, tmp_path: Path
) -> None:
    target, generator = target_of("cascadelake"), np.random.default_rng(0)
    data = generator.integers(0, 256, (rows, 30)).astype("uint8")
    weights = generator.integers(-128, 128, (30, 50)).astype("int8")
    builder, size = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((size, 30), "uint8"))
    w = relax.Var("w", relax.TensorType(weights.shape, "int8"))
    with builder.function("main", [x] if is_constant else [x, w]):
        with builder.dataflow():
            right = relax.const(weights, "int8") if is_constant else w
            result = builder.emit_output(op.matmul(x, right, out_dtype="int32"))
        builder.emit_func_output(result)
    module = scheduled(builder.get(), target)

    inputs = (data,) if is_constant else (data, weights)
    (computed,) = outputs_compiled(server, module, target, inputs, tmp_path)

    assert unclaimed_functions(module) == ()
    assert "vpdpbusd" in module.script()
    np.testing.assert_array_equal(computed, data.astype("int32") @ weights.astype("int32"))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["neoverse-v1", "neoverse-n1"])
@pytest.mark.parametrize("kind", ["int8", "uint8", "bfloat16"])
def test_products_of_all_shapes_are_right_under_emulation(
    kind: str, name: str, context: StageContext, tmp_path: Path
) -> None:
    target = preset(name)
    skip_unless_it_runs(target.triple)
    model = Brains() if kind == "bfloat16" else Bytes(getattr(torch, kind))
    captured = capture_module(model, *model.inputs(), target=target, inspect={"assembly": True})

    built = compile_to_library(captured, context)
    bundle_of(built, context, tmp_path / "bundle")
