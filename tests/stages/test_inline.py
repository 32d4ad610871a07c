from pathlib import Path

import numpy as np
import torch
import tvm
from stage_samples import TARGET, Function, capture_module, make_context, optimized
from torch import nn
from tvm import s_tir, te, tirx

from worker.candidates.client import CandidateClient
from worker.compiler.codegen.executable import build_library
from worker.compiler.schedules.default import default_schedule, schedule_rest
from worker.compiler.schedules.inline import inline_blocks
from worker.compiler.target import compile_target


def test_halves_of_shuffled_channels_are_both_written(server: CandidateClient, tmp_path: Path) -> None:
    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([x[:, :8], self.first(x[:, 8:]).relu()], 1)
        shuffled = joined.view(1, 2, 8, 8, 8).transpose(1, 2).reshape(1, 16, 8, 8)
        left, right = shuffled.chunk(2, 1)
        return torch.cat([left, self.second(right).relu()], 1)

    module = Function(body, first=nn.Conv2d(8, 8, 1), second=nn.Conv2d(8, 8, 1))
    ready = optimized(capture_module(module, torch.randn(1, 16, 8, 8)), make_context(tmp_path))
    target = ready.captured.upload.target.llvm
    path = tmp_path / "model.so"
    build_library(schedule_rest(ready.module, target), target, path, tmp_path / "objects")
    with server.open_library(path, threads=2) as library:
        (computed,) = library.run(ready.captured.inputs)

    np.testing.assert_allclose(computed, ready.captured.references[0], rtol=1e-4, atol=1e-5)


def test_the_padding_of_a_join_is_written_too() -> None:
    first, second = te.placeholder((5,), name="first"), te.placeholder((7,), name="second")
    join = te.compute((12,), lambda i: te.if_then_else(i < 5, first[i], second[i - 5]), name="join")
    blocks = te.compute(
        (2, 8),
        lambda block, lane: te.if_then_else(block * 8 + lane < 12, join[block * 8 + lane], 0.0),
        name="to_blocks",
    )
    numbers = np.arange(12, dtype="float32")

    found = compute([first, second, blocks], numbers[:5], numbers[5:])

    np.testing.assert_array_equal(found, np.pad(numbers, (0, 4)).reshape(2, 8))


def test_the_rest_of_a_shift_is_written_too() -> None:
    first = te.placeholder((16,), name="first")
    root = te.compute((16,), lambda i: te.sqrt(first[i]), name="root")
    shifted = te.compute((16,), lambda i: te.if_then_else(i < 8, root[i + 8], 0.0), name="shifted")
    squares = np.arange(16, dtype="float32") ** 2

    found = compute([first, shifted], squares)

    np.testing.assert_array_equal(found, np.pad(np.arange(8, 16), (0, 8)))


def compute(tensors: list[te.Tensor], *inputs: np.ndarray) -> np.ndarray:
    """The output of the scheduled function, in a buffer of NaN."""
    target = compile_target(TARGET).llvm
    function = default_schedule(te.create_prim_func(tensors), target)
    found = tvm.runtime.tensor(np.full([int(size) for size in tensors[-1].shape], np.nan, "float32"))
    tvm.compile(function, target)(*map(tvm.runtime.tensor, inputs), found)
    return found.numpy()


def repeated(levels: int) -> tirx.PrimFunc:
    """Each level is read by several expressions, which the next one joins."""
    data = tensor = te.placeholder((64,), name="data")

    def scaled(total: te.Tensor, factor: float) -> te.Tensor:
        return te.compute((64,), lambda i: total[i] * factor)

    def level(before: te.Tensor) -> te.Tensor:
        total = te.compute((64,), lambda i: before[i] + sum((data[i] + n) * (data[i] - n) for n in range(4)))
        parts = [scaled(total, n + 0.5) for n in range(3)]
        return te.compute((64,), lambda i: parts[0][i] * parts[1][i] + parts[2][i])

    for _ in range(levels):
        tensor = level(tensor)
    return te.create_prim_func([data, tensor])


def test_copies_in_several_consumers_do_not_double_a_function_with_each_level() -> None:
    few, many = (len(inline_blocks(s_tir.Schedule(repeated(levels))).mod.script()) for levels in (4, 8))

    assert many < 3 * few
