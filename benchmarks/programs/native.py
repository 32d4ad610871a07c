"""Compiles the benchmark's own C programs, and describes how ONNX Runtime's C API runs a model."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).parent
ONNX_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}


class MissingError(RuntimeError):
    """Something that a side needs is not installed; the message says what."""


def compiled(name: str, folder: Path) -> Path:
    """Compile a C program of this folder with zig."""
    program = folder / name
    command = (sys.executable, "-m", "ziglang", "cc", "-O2", "-Wall", "-Wextra", "-Werror")
    subprocess.run([*command, SOURCES / f"{name}.c", "-o", program], check=True)
    return program


def onnx_library() -> Path:
    """ONNX Runtime's shared library with the C API, which its wheels contain since 1.32.

    Raises:
        MissingError: there is none.
    """
    found = find_spec("onnxruntime")
    if found is None or found.origin is None:
        raise MissingError("onnxruntime is not installed: see the extra `peers`")
    library = next(Path(found.origin).parent.glob("capi/libonnxruntime.so.*"), None)
    if library is None:
        raise MissingError("this onnxruntime has no library with the C API")
    return library


def onnx_command(
    program: Path, model: Path, threads: int, inputs: dict[str, np.ndarray], output: Path
) -> list[str]:
    """The command that runs a model once and writes its first output.

    Args:
        program: ``onnx_run``.
        model: the ONNX file.
        threads: the number of threads of the session.
        inputs: arrays by the names of the model's inputs. Their bytes are written beside the output.
        output: the file for the first output.
    """
    words = [str(program), str(onnx_library()), str(model), str(threads), str(output)]
    for name, array in inputs.items():
        path = output.with_name(f"{name}.bin")
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        words += [name, str(ONNX_TYPES[array.dtype.name]), "x".join(map(str, array.shape)), str(path)]
    return words
