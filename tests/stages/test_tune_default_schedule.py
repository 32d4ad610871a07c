"""Every case runs twice, naive and scheduled, in the candidate server's processes; nothing runs here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from family_samples import main_of, outputs_compiled
from tvm import relax

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import default_schedule, is_scheduled, schedule_rest
from worker.compiler.schedules.processors import Machine, Tile, choose_tile
from worker.compiler.target import host_mcpu

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": host_mcpu(), "num-cores": 2})
RELATIVE = 1e-5
op = relax.op
nn = relax.op.nn


@dataclass(frozen=True)
class Case:
    """An expression of Relax over inputs of these shapes; ``i`` before a shape makes small integers of it."""

    name: str
    build: Callable[..., relax.Expr]
    shapes: tuple[tuple[int, ...], ...]
    integers: int = 0
    tiled: bool = False


def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    return nn.layer_norm(x, gamma, beta, axes=[-1])


def conv(**options: Any) -> Callable[..., Any]:
    return lambda x, w: nn.conv2d(x, w, **options)


def attention_scores(q: Any, k: Any) -> Any:
    return op.matmul(q, op.permute_dims(k, [0, 2, 1]))


def linear_relu(x: Any, weight: Any, bias: Any) -> Any:
    return nn.relu(op.add(op.matmul(x, weight), bias))


def residual(x: Any, weight: Any, shortcut: Any) -> Any:
    return nn.relu(op.add(nn.conv2d(x, weight, padding=1), shortcut))


def max_pool(x: Any) -> Any:
    return nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))


def transpose_and_join(a: Any, b: Any) -> Any:
    return op.concat([op.permute_dims(a, [1, 0]), op.multiply(b, b)], axis=1)


CASES = [
    Case("matmul", op.matmul, ((64, 96), (96, 48)), tiled=True),
    Case("matmul-of-odd-sizes", op.matmul, ((37, 53), (53, 41))),
    Case("matmul-of-primes-by-even", op.matmul, ((197, 64), (64, 96)), tiled=True),
    Case("matmul-of-one-row", op.matmul, ((1, 784), (784, 128)), tiled=True),
    Case("matmul-of-ten-columns", op.matmul, ((1, 128), (128, 10)), tiled=True),
    Case("matmul-large", op.matmul, ((128, 256), (256, 192)), tiled=True),
    Case("matmul-batched-transposed", attention_scores, ((4, 24, 16), (4, 40, 16))),
    Case("linear-relu", linear_relu, ((8, 64), (64, 32), (32,)), tiled=True),
    Case("linear-gelu", lambda x, w: nn.gelu(op.matmul(x, w)), ((17, 64), (64, 96)), tiled=True),
    Case("conv2d", conv(padding=1), ((1, 16, 28, 28), (32, 16, 3, 3)), tiled=True),
    Case("conv2d-odd-strided", conv(padding=1, strides=2), ((2, 3, 23, 31), (7, 3, 3, 3))),
    Case("conv2d-prime-width", conv(), ((1, 5, 19, 19), (11, 5, 3, 3))),
    Case("conv2d-residual", residual, ((1, 8, 14, 14), (8, 8, 3, 3), (1, 8, 14, 14)), tiled=True),
    Case("depthwise", conv(padding=1, groups=24), ((1, 24, 28, 28), (24, 1, 3, 3))),
    Case("conv1d", lambda x, w: nn.conv1d(x, w, padding=1), ((2, 6, 33), (10, 6, 3))),
    Case("softmax", lambda x: nn.softmax(x, axis=-1), ((3, 7, 65),)),
    Case("softmax-large", lambda x: nn.softmax(x, axis=-1), ((64, 1000),)),
    Case("softmax-first-axis", lambda x: nn.softmax(x, axis=0), ((13, 32),)),
    Case("log-softmax", lambda x: nn.log_softmax(x, axis=-1), ((9, 33),)),
    Case("layer-norm", layer_norm, ((3, 31, 77), (77,), (77,))),
    Case("layer-norm-large", layer_norm, ((64, 768), (768,), (768,))),
    Case("max-pool", max_pool, ((1, 16, 31, 29),)),
    Case("average-pool", lambda x: nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2)), ((2, 5, 15, 17),)),
    Case("global-average-pool", lambda x: nn.adaptive_avg_pool2d(x, (1, 1)), ((1, 64, 7, 7),)),
    Case("gather", lambda table, i: op.take(table, i, axis=0), ((100, 33), (5, 7)), integers=1),
    Case("sum-of-all", lambda x: op.sum(x), ((9, 31),)),
    Case("mean-of-rows", lambda x: op.mean(x, axis=[-1]), ((130, 257),)),
    Case("sum-of-columns", lambda x: op.sum(x, axis=[0]), ((130, 256),)),
    Case("argmax", lambda x: op.argmax(x, axis=-1), ((9, 31),)),
    Case("cumulative-sum", lambda x: op.cumsum(x, axis=-1), ((9, 31),)),
    Case("concatenation", transpose_and_join, ((5, 9), (9, 13))),
    Case("broadcast", lambda a, b: op.add(op.tanh(a), b), ((37, 1, 53), (41, 53))),
    Case("large-elementwise", lambda a: op.exp(op.negative(a)), ((301, 307),)),
    Case("pad", lambda x: nn.pad(x, (0, 0, 1, 2, 3, 4)), ((4, 9, 11),)),
    Case("scalar", lambda a, b: op.add(a, b), ((), ())),
]  # fmt: skip


def lower(case: Case) -> tvm.IRModule:
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    return tvm.ir.transform.Sequential(passes)(main_of(case.build, *make_inputs(case)))


def make_inputs(case: Case) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(0)
    floats = case.shapes[: len(case.shapes) - case.integers]
    integers = case.shapes[len(floats) :]
    return (
        *(generator.standard_normal(shape, dtype="float32") for shape in floats),
        *(generator.integers(0, 7, shape) for shape in integers),
    )


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_default_schedule_computes_what_the_naive_loops_compute(
    server: CandidateClient, tmp_path: Path, case: Case
) -> None:
    module = lower(case)
    scheduled = schedule_rest(module, TARGET)
    functions = [
        function for function in scheduled.functions.values() if not isinstance(function, relax.Function)
    ]
    assert all(is_scheduled(function) for function in functions)
    assert case.tiled <= any(sign in scheduled.script() for sign in ("T.unroll", "T.alloc_local"))

    inputs = make_inputs(case)
    found, expected = (
        outputs_compiled(server, each, TARGET, inputs, tmp_path) for each in (scheduled, module)
    )
    for ours, naive in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, naive, rtol=RELATIVE, atol=1e-5)


def test_a_function_that_cannot_be_scheduled_stays_as_it_is() -> None:
    opaque = tvm.te.extern(
        (4,), [], lambda _, outputs: tvm.tirx.call_packed("no.such", outputs[0]), dtype="float32"
    )
    function = tvm.te.create_prim_func([opaque])
    scheduled = default_schedule(function, TARGET)
    assert is_scheduled(scheduled)
    tvm.ir.assert_structural_equal(scheduled.body, function.body)


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        (128, 1, Tile(rows=1, vectors=8, lanes=8)),
        (512, 512, Tile(rows=2, vectors=4, lanes=8)),
        (48, 6, Tile(rows=6, vectors=2, lanes=8)),
        (56, 64, Tile(rows=8, vectors=1, lanes=8)),
        (7, 64, Tile(rows=8, vectors=1, lanes=7)),
        (10, 1, Tile(rows=1, vectors=2, lanes=5)),
        (41, 37, None),
    ],
)
def test_a_tile_divides_its_loops_and_fits_the_registers(columns: int, rows: int, expected: Any) -> None:
    machine = Machine(vector_bits=256, registers=16, threads=2)
    assert choose_tile(columns, rows, bits=32, machine=machine) == expected
