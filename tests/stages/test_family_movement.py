"""Transpositions, resizes, scans, reductions over earlier dimensions: odd shapes, several targets."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import tvm
from coverage_samples import Case, Together, run_together
from family_samples import run_compiled, source_of, target_of
from stage_samples import TARGET, Function, capture_module, make_context, optimized

from worker.candidates.client import CandidateClient
from worker.compiler.legalize.resize import find_taps
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.families.columns import chunk_vectors
from worker.compiler.schedules.families.transpose import transposing_network
from worker.compiler.target import compile_target

SIZES = (1, 2, 3, 7, 8, 13, 16, 33, 49, 100)


def some_sizes(rank: int, seed: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).choice(SIZES[: 10 if rank < 4 else 7], rank).tolist())


def transposed(order: tuple[int, ...], seed: int) -> Case:
    dtype = (torch.float32, torch.float64, torch.float16)[seed % 3]
    shape = some_sizes(len(order), seed)
    return Case(f"{order} of {shape}", lambda x: x.permute(order) * 2, (shape,), dtype=dtype)


def reduced(name: str, rank: int, axes: tuple[int, ...], seed: int) -> Case:
    functions = {
        "sum": lambda x: x.sum(axes),
        "amax": lambda x: x.amax(axes),
        "softmax": lambda x: torch.softmax(x, axes[0]),
        "argmin": lambda x: x.argmin(axes[0]),
        "cumsum": lambda x: x.cumsum(axes[0]),
        "var": lambda x: x.var(axes, correction=0),
    }
    return Case(f"{name} of {rank} over {axes}", functions[name], (some_sizes(rank, seed),), tolerance=1e-4)


ORDERS = [(1, 0), *permutations(range(3)), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (0, 3, 1, 4, 2)]
CASES = (
    *(transposed(order, seed) for seed, order in enumerate(ORDERS)),
    *(
        reduced(name, rank, axes, 31 * seed)
        for seed, (name, (rank, axes)) in enumerate(
            (name, place)
            for name in ("sum", "amax", "softmax", "argmin", "cumsum", "var")
            for place in [(2, (0,)), (3, (1,)), (4, (1,)), (4, (0, 2)), (4, (2, 3))]
        )
    ),
    *(
        Case(
            mode, lambda x, mode=mode: F.interpolate(x, size=(2 * x.shape[2], 14), mode=mode), ((2, 3, 5, 7),)
        )
        for mode in ("nearest", "bilinear", "bicubic")
    ),
)


@pytest.mark.sampled
@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3"])
def test_odd_shapes_agree_with_torch(server: CandidateClient, tmp_path: Path, mcpu: str) -> None:
    run = run_together(server, CASES, target_of(mcpu), tmp_path)

    assert run.unclaimed == ()
    for case, result, expected in zip(CASES, run.computed, run.expected, strict=True):
        np.testing.assert_allclose(
            result, expected, rtol=case.tolerance, atol=case.tolerance, err_msg=case.name
        )


def test_wide_vectors_build(tmp_path: Path) -> None:
    cases = CASES[:12] + CASES[-10:]
    inputs = tuple(tensor for case in cases for tensor in case.inputs())
    wide = TARGET.model_copy(update={"name": "x86-64-v4", "mcpu": "x86-64-v4"})
    captured = capture_module(Together(cases), *inputs, target=wide)
    module = schedule_rest(optimized(captured, make_context(tmp_path)).module, compile_target(wide).llvm)

    assert "<16 x float>" in source_of(tvm.compile(module, compile_target(wide).llvm).mod)


@pytest.mark.parametrize(("lanes", "bits"), [(4, 32), (4, 64), (8, 16), (8, 32), (8, 64), (16, 8), (16, 32)])
def test_the_shuffles_transpose_a_square(lanes: int, bits: int) -> None:
    square = np.arange(lanes * lanes).reshape(lanes, lanes)
    network = transposing_network(lanes, bits)
    vectors = list(square)
    for step in network.steps:
        both = np.concatenate([vectors[step.first], vectors[step.second]])
        vectors[step.first], vectors[step.second] = both[list(step.low)], both[list(step.high)]

    assert np.array_equal(np.stack([vectors[number] for number in network.order]), square.T)


@pytest.mark.parametrize(
    ("extent", "lanes", "tasks", "threads", "vectors"),
    [(3, 3, 1, 1, 1), (64, 8, 1, 1, 8), (64, 8, 1, 2, 4), (49, 8, 64, 2, 4), (197, 8, 64, 2, 5)],
)
def test_a_chunk_hides_latency_and_leaves_every_thread_a_task(
    extent: int, lanes: int, tasks: int, threads: int, vectors: int
) -> None:
    assert chunk_vectors(extent, lanes, tasks, threads) == vectors


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_the_weights_of_a_place_add_up_to_one(method: str, mode: str) -> None:
    taps = find_taps(method, mode, 7, 17, -0.75)

    assert taps is not None
    np.testing.assert_allclose(taps.weights.sum(0), 1)
    assert taps.places.min() >= 0
    assert taps.places.max() <= 6


def test_bfloat16_is_transposed(server: CandidateClient, tmp_path: Path) -> None:
    captured = capture_module(Function(lambda _, x: x.t() * 2), torch.randn(20, 33).bfloat16())
    target = target_of("x86-64-v3")
    module = schedule_rest(optimized(captured, make_context(tmp_path)).module, target)

    found = run_compiled(server, module, target, captured.inputs, tmp_path)

    np.testing.assert_array_equal(found, captured.references[0])
