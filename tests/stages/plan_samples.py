"""Functions that the families have several plans for."""

from collections.abc import Callable

import family_samples
import tvm
from family_samples import Array, main_of, numbers, target_of
from tvm import relax

TARGET = target_of("x86-64-v3")
op = relax.op


def constant(*shape: int) -> relax.Expr:
    return relax.const(numbers(*shape) / 8)


def convolved(x: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.nn.conv2d(x, constant(24, 16, 3, 3), strides=(2, 2), padding=(1, 1)))


def tiled(x: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.nn.conv2d(x, constant(32, 32, 3, 3), padding=(1, 1)))


def grouped(x: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.nn.conv2d(x, constant(32, 4, 3, 3), padding=(1, 1), groups=8))


def depthwise(x: relax.Expr) -> relax.Expr:
    separated = op.nn.conv2d(x, constant(16, 1, 3, 3), padding=(1, 1), groups=16)
    return op.nn.conv2d(separated, constant(8, 16, 1, 1))


def pooled(x: relax.Expr) -> relax.Expr:
    return op.nn.avg_pool2d(op.nn.conv2d(x, constant(32, 16, 1, 1)), (13, 11))


FUNCTIONS: dict[str, tuple[Callable[..., relax.Expr], tuple[Array, ...]]] = {
    "convolution": (convolved, (numbers(1, 16, 13, 11),)),
    "winograd": (tiled, (numbers(1, 32, 38, 40),)),
    "grouped": (grouped, (numbers(1, 32, 13, 11),)),
    "depthwise": (depthwise, (numbers(1, 16, 13, 11),)),
    "pool": (pooled, (numbers(1, 16, 13, 11),)),
    "linear": (lambda x: op.nn.relu(op.matmul(x, constant(40, 37))), (numbers(29, 40),)),
    "product": (op.matmul, (numbers(2, 33, 20), numbers(2, 20, 50))),
    "transposed": (lambda x, y: op.matmul(x, op.permute_dims(y)), (numbers(33, 20), numbers(50, 20))),
    "softmax": (lambda x: op.nn.softmax(x), (numbers(17, 70),)),
}


def optimized(name: str) -> tvm.IRModule:
    """A function after the optimize stage's passes."""
    build, inputs = FUNCTIONS[name]
    return family_samples.optimized(main_of(build, *inputs), TARGET)
