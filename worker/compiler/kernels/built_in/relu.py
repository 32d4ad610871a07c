"""A ReLU in C: ``c/relu.c``."""

from __future__ import annotations

from worker.compiler.kernels.kernel import OBJECTS, Kernel, Operand


def _is_float(operands: tuple[Operand, ...]) -> bool:
    return operands[0].dtype == "float32"


KERNELS = (
    Kernel(
        operator="relu",
        name="c",
        chain=("nn.relu",),
        symbol="bessemer_relu",
        objects=OBJECTS,
        object="relu.o",
        fits=_is_float,
    ),
)
