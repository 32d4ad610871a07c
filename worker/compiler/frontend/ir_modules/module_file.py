"""Reads an uploaded IRModule: TVMScript, TVM's JSON, or a zip archive of either with arrays beside it.

An archive has one of ``module.py`` and ``module.json``, and may have the values of parameters in
``weights.npz`` or ``weights.safetensors``, and inputs with their outputs in ``reference.npz``.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - gives NumPy bfloat16
import numpy as np
import tvm

from bessemer.bundle.run import SAFETENSORS_DTYPES, split_safetensors
from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.ir_modules.recognize import JSON, SCRIPT, is_module_json
from worker.compiler.frontend.ir_modules.script import run_script
from worker.compiler.frontend.zip_archive import read_entry
from worker.errors import JobError, failure_of, short_message

Named = Mapping[str, "np.ndarray[Any, Any]"]

WEIGHTS = ("weights.npz", "weights.safetensors")
REFERENCE = "reference.npz"
_ZIP_MAGIC = b"PK\x03\x04"
_UNLIMITED = -1


@dataclass(frozen=True)
class ModuleFile:
    """An IRModule with what was uploaded beside it.

    Attributes:
        module: the module as its author wrote it.
        functions: the Python functions of a script, by name.
        registered: the names of the packed functions that a script has registered with TVM.
        weights: values of parameters by their names.
        reference: inputs and outputs by their names.
    """

    module: tvm.IRModule
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    registered: frozenset[str] = frozenset()
    weights: Named = field(default_factory=dict)
    reference: Named = field(default_factory=dict)


def read_module_file(path: Path) -> ModuleFile:
    """Read the module and what is beside it. This runs a script, so call it only in the sandbox.

    Raises:
        JobError: ``model-module-invalid`` with the line, or the array that cannot be read.
    """
    content = path.read_bytes()
    if not content.startswith(_ZIP_MAGIC):
        return _module(content)
    entries = {name: read_entry(path, name, _UNLIMITED) for name in (SCRIPT, JSON, *WEIGHTS, REFERENCE)}
    found = {name: content for name, content in entries.items() if content is not None}
    read = _module(found[SCRIPT] if SCRIPT in found else found[JSON])
    weights = next((name for name in WEIGHTS if name in found), None)
    return replace(
        read,
        weights={} if weights is None else _arrays(weights, found[weights]),
        reference=_arrays(REFERENCE, found[REFERENCE]) if REFERENCE in found else {},
    )


def _module(content: bytes) -> ModuleFile:
    if is_module_json(content):
        return ModuleFile(_from_json(content.decode("utf-8", "replace")))
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        detail = f"the script is not UTF-8: {error.reason} at byte {error.start}"
        raise JobError(ErrorCode.MODEL_MODULE_INVALID, detail) from error
    script = run_script(source)
    return ModuleFile(script.module, script.functions, script.registered)


def _from_json(text: str) -> tvm.IRModule:
    try:
        loaded = tvm.ir.load_json(text)
    except Exception as error:
        detail = f"TVM {tvm.__version__} cannot read the JSON: {short_message(error)}"
        raise failure_of(ErrorCode.MODEL_MODULE_INVALID, error, detail) from error
    if isinstance(loaded, tvm.tirx.PrimFunc | tvm.relax.Function):
        return tvm.IRModule.from_expr(loaded)
    if not isinstance(loaded, tvm.IRModule):
        detail = f"the JSON holds a {type(loaded).__name__}, not an IRModule"
        raise JobError(ErrorCode.MODEL_MODULE_INVALID, detail)
    return loaded


def _arrays(name: str, content: bytes) -> dict[str, np.ndarray[Any, Any]]:
    try:
        if name.endswith(".npz"):
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {key: np.ascontiguousarray(file[key]) for key in file.files}
        header, data = split_safetensors(np.frombuffer(content, np.uint8))
        return {key: _tensor(entry, data) for key, entry in header.items()}
    except Exception as error:
        detail = f"{name} cannot be read: {short_message(error)}"
        raise failure_of(ErrorCode.MODEL_MODULE_INVALID, error, detail) from error


def _tensor(entry: Mapping[str, Any], data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    start, end = entry["data_offsets"]
    return data[start:end].view(np.dtype(SAFETENSORS_DTYPES[entry["dtype"]])).reshape(entry["shape"])
