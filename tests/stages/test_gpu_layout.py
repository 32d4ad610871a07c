"""The layout phase for GPUs: channels last between convolutions, and no calls of the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from gpu_functions import Build, Kind, calls, family_of, floats, functions_of, module_of, prepared
from tvm import relax
from tvm.relax import op

from tests.gpu.run import GPU, assert_close, execute, random_arrays
from worker.compiler.layout.gpu.channels_last import channels_last
from worker.compiler.layout.gpu.early_slices import early_slices
from worker.compiler.layout.gpu.processor_calls import refuse_processor_calls
from worker.compiler.schedules.default import schedule_rest
from worker.compiler.schedules.gpu.processor_loops import calls_of
from worker.errors import JobError

_GENERATOR = np.random.default_rng(3)


def constant(*sizes: int) -> relax.Expr:
    """A constant of small numbers."""
    return relax.const(_GENERATOR.standard_normal(sizes).astype("float32") / 4)


def convolution(channels: int, inputs: int, size: int = 3) -> Build:
    """A convolution with a bias."""
    weights, bias = constant(channels, inputs, size, size), constant(1, channels, 1, 1)
    return lambda x: op.nn.relu(op.add(op.nn.conv2d(x, weights, padding=size // 2), bias))


def joined(x: relax.Expr) -> relax.Expr:
    """Two convolutions, their results joined, pooled and averaged."""
    y = convolution(4, 3)(x)
    z = op.nn.max_pool2d(op.concat([y, convolution(4, 4)(y)], axis=1), (2, 2), (2, 2))
    return op.reshape(op.mean(z, axis=[2, 3], keepdims=True), (1, 8))


GRAPHS: dict[str, tuple[Build, list[str]]] = {
    "a convolution": (convolution(4, 3), ["permute_dims", "nn.conv2d", "add", "nn.relu", "permute_dims"]),
    "a classifier": (
        joined,
        [
            "permute_dims",
            "nn.conv2d",
            "add",
            "nn.relu",
            "nn.conv2d",
            "add",
            "nn.relu",
            "concat",
            "nn.max_pool2d",
            "mean",
            "reshape",
        ],
    ),
    "a transposed convolution without overlap": (
        lambda x: op.nn.conv2d_transpose(convolution(4, 3)(x), constant(4, 5, 2, 2), strides=2),
        [
            "permute_dims",
            "nn.conv2d",
            "add",
            "nn.relu",
            "reshape",
            "matmul",
            "reshape",
            "permute_dims",
            "reshape",
            "permute_dims",
        ],
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_images_keep_their_channels_last_between_convolutions(name: str) -> None:
    build, expected = GRAPHS[name]

    assert calls(channels_last(module_of(build, floats(1, 3, 6, 6)))) == expected


@pytest.mark.sampled
@pytest.mark.parametrize("name", GRAPHS)
def test_the_layout_changes_no_result(name: str) -> None:
    build, _ = GRAPHS[name]
    plain = module_of(build, floats(1, 3, 6, 6))

    assert_same(plain, channels_last(plain), floats(1, 3, 6, 6))


def test_a_slice_moves_before_the_norm_of_its_rows() -> None:
    def build(x: relax.Expr, g: relax.Expr, b: relax.Expr) -> relax.Expr:
        return op.strided_slice(op.nn.layer_norm(x, g, b, axes=[-1]), [1], [0], [1])

    kinds = (floats(1, 5, 8), floats(8), floats(8))
    plain = module_of(build, *kinds)
    moved = early_slices(plain)

    assert calls(moved) == ["call_tir", "nn.layer_norm"]
    assert_same(plain, moved, *kinds)


def test_a_slice_of_the_normalized_dimension_stays_behind() -> None:
    def build(x: relax.Expr) -> relax.Expr:
        return op.strided_slice(op.nn.softmax(x), [1], [0], [3])

    assert calls(early_slices(module_of(build, floats(5, 8)))) == ["nn.softmax", "strided_slice"]


RUNTIME: dict[str, tuple[Build, tuple[Kind, ...]]] = {
    "argsort": (lambda x: op.argsort(x, axis=-1, descending=True, dtype="int64"), (floats(3, 17),)),
    "topk": (lambda x: op.topk(x, 3, 1, "both", True, "int64"), (floats(2, 17, 3),)),
    "cumsum": (lambda x: op.cumsum(x, axis=1), (floats(3, 50),)),
    "argmax": (lambda x: op.argmax(x, axis=-1), (floats(5, 37),)),
    "resize": (
        lambda x: op.image.resize2d(x, (7, 9), layout="NCHW", method="linear"),
        (floats(1, 2, 5, 5),),
    ),
}


@pytest.mark.parametrize("name", RUNTIME)
def test_sorts_and_scans_are_plain_loops_on_a_gpu(name: str) -> None:
    build, kinds = RUNTIME[name]
    module = prepared(module_of(build, *kinds))

    assert not any(calls_of(function) for function in functions_of(module).values())
    arrays = random_arrays([shape for shape, _ in kinds], [dtype for _, dtype in kinds])
    found = execute(schedule_rest(module, GPU.target), arrays)
    for one, other in zip(found, results(module_of(build, *kinds), arrays), strict=True):
        assert_close(one, other, 1e-5)


def test_a_row_too_long_to_sort_is_refused_with_its_place() -> None:
    build = RUNTIME["argsort"][0]
    module = prepared(module_of(build, floats(2, 1 << 17)))

    with pytest.raises(JobError, match="a GPU cannot call") as caught:
        refuse_processor_calls(module, {})
    assert caught.value.code == "operator-unsupported"
    assert len(caught.value.places) == 1


def assert_same(one: tvm.IRModule, other: tvm.IRModule, *kinds: Kind) -> None:
    """Two modules return the same."""
    arrays = random_arrays([shape for shape, _ in kinds], [dtype for _, dtype in kinds])
    for found, expected in zip(results(other, arrays), results(one, arrays), strict=True):
        assert_close(found, expected, 1e-5)


def results(module: tvm.IRModule, arrays: list[Any]) -> list[Any]:
    """What a module returns on this processor."""
    executable = tvm.compile(module, tvm.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, arrays))
    return [item.numpy() for item in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]


def test_convolutions_and_pools_of_a_network_are_claimed() -> None:
    module = prepared(channels_last(module_of(joined, floats(1, 3, 8, 8))))

    families = {name: family_of(function) for name, function in functions_of(module).items()}
    assert None not in families.values(), families
