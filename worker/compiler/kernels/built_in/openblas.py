"""Linear layers by OpenBLAS, from the package scipy-openblas32: ``c/openblas_linear.c``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from worker.compiler.kernels.kernel import OBJECTS, Kernel, Operand, SharedLibrary

PACKAGE = "scipy-openblas32"
LIBRARY = "libscipy_openblas.so"


def find_openblas() -> tuple[SharedLibrary, ...]:
    """The environment's library; empty if the package is not installed."""
    try:
        files = distribution(PACKAGE).files or ()
    except PackageNotFoundError:
        return ()
    paths = [Path(str(file.locate())) for file in files]
    licenses = tuple(path for path in paths if path.parent.name == "licenses")
    return tuple(SharedLibrary(path, licenses) for path in paths if path.name == LIBRARY)


def _is_linear(operands: tuple[Operand, ...]) -> bool:
    """Float32 rows times a matrix of known sizes, and biases of one element per column."""
    data, weights, *rest = operands
    if len(data.shape) < 2 or len(weights.shape) != 2 or None in weights.shape or 0 in weights.shape:
        return False
    per_column = all(_is_bias(bias, weights.shape[1]) for bias in rest)
    return per_column and {operand.dtype for operand in operands} == {"float32"}


def _is_bias(bias: Operand, columns: int | None) -> bool:
    return bool(bias.shape) and bias.shape[-1] == columns and set(bias.shape[:-1]) <= {1}


def _linear(suffix: str, *epilogue: str) -> Kernel:
    return Kernel(
        operator="linear",
        name="openblas",
        chain=("matmul", *epilogue),
        symbol=f"bessemer_openblas_linear{suffix}",
        objects=OBJECTS,
        object="openblas_linear.o",
        fits=_is_linear,
        libraries=_OPENBLAS,
    )


_OPENBLAS = find_openblas()

KERNELS = (_linear(""), _linear("_bias", "add"), _linear("_bias_relu", "add", "nn.relu")) if _OPENBLAS else ()
"""None where the package has no build for this machine."""
