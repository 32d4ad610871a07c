"""Save IRModules as files, alone or in an archive with arrays beside them.

This module never imports TVM or NumPy: their objects prove that the user's program has imported them.
"""

import importlib
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bessemer.errors import ExportError, InvalidArgumentError

Arrays = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a ``.npz`` or ``.safetensors`` file, or arrays or tensors by name."""

_KINDS = frozenset({"tvm.ir.module.IRModule", "tvm.relax.expr.Function", "tvm.tirx.function.PrimFunc"})
_EPOCH = (1980, 1, 1, 0, 0, 0)
_NPZ, _SAFETENSORS = ".npz", ".safetensors"


@dataclass(frozen=True)
class Beside:
    """The arrays that are uploaded with an IRModule.

    Attributes:
        weights: values of parameters by their names.
        reference: inputs and outputs by their names.
    """

    weights: Arrays | None = None
    reference: Arrays | None = None

    def __bool__(self) -> bool:
        return self.weights is not None or self.reference is not None


NOTHING = Beside()


def is_ir_module(model: object) -> bool:
    """Whether a model is an IRModule or a function of TVM."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in _KINDS for kind in type(model).__mro__)


def ir_module_bytes(model: object) -> bytes:
    """TVM's JSON of an IRModule.

    Raises:
        ExportError: TVM cannot save it.
    """
    try:
        text: str = importlib.import_module("tvm.ir").save_json(model)
    except Exception as error:
        raise ExportError(f"TVM could not save the module: {error}") from error
    return text.encode()


def packed(module: bytes, beside: Beside) -> bytes:
    """A zip archive of a module with the arrays beside it. Equal contents give equal bytes.

    Raises:
        InvalidArgumentError: a file of arrays cannot be read, or has another format.
    """
    is_json = module.lstrip().startswith(b"{")
    contents = {"module.json" if is_json else "module.py": module}
    if beside.weights is not None:
        contents.update(_file("weights", beside.weights, (_NPZ, _SAFETENSORS)))
    if beside.reference is not None:
        contents.update(_file("reference", beside.reference, (_NPZ,)))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return stream.getvalue()


def _file(name: str, arrays: Arrays, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    if isinstance(arrays, Mapping):
        return {name + _NPZ: _npz(arrays)}
    path = Path(arrays)
    if path.suffix not in suffixes:
        raise InvalidArgumentError(f"{name}: {path} is not a {' or '.join(suffixes)} file")
    try:
        return {name + path.suffix: path.read_bytes()}
    except OSError as error:
        raise InvalidArgumentError(f"{name}: {path} cannot be read: {error.strerror}") from error


def _npz(arrays: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    plain = {name: _plain(array) for name, array in arrays.items()}
    importlib.import_module("numpy").savez(stream, **plain)
    return stream.getvalue()


def _plain(array: Any) -> Any:
    """An array, also of a tensor of torch."""
    return array.detach().cpu().numpy() if hasattr(array, "detach") else array
