"""Recognizes a model's format by its bytes, never by its name, and without unpickling."""

import re
from pathlib import Path

from bessemer.contract.model import ModelFormat
from bessemer.contract.problem import ErrorCode
from worker.compiler.frontend.ir_modules.recognize import is_module_archive, is_module_text, is_python
from worker.compiler.frontend.pickles import Root, legacy_root, pickle_root
from worker.compiler.frontend.zip_archive import Archive, check_archive, read_entry
from worker.errors import JobError

ZIP_MAGIC = b"PK\x03\x04"
HEAD_BYTES = 1 << 20
MODEL_ENTRY = re.compile(r"models/[^/]+\.json")
"""The programs of a `.pt2`."""
FX_MAKERS = {"reduce_graph_module", "reduce_package_graph_module"}

WEIGHTS_ONLY = (
    "weights without the code that uses them; load them into their module, export it with "
    "`torch.export.export`, and save the program with `torch.export.save`"
)

NOTHING_KNOWN = "neither a zip archive, nor a pickled object, nor a Python file, nor the JSON of an IRModule"

# offset, bytes, description of the file
MAGICS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as of Keras; only PyTorch models are supported"),
    (4, b"TFL3", "a TensorFlow Lite file; export the PyTorch model that it was converted from"),
    (0, b"GGUF", f"a GGUF file: {WEIGHTS_ONLY}"),
    (0, b"\x93NUMPY", "a NumPy array, not a model"),
    (0, b"\x7fELF", "a compiled program or library"),
    (0, b"\x1f\x8b", "a gzip file; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard file; unpack it first"),
    (0, b"\xfd7zXZ", "an xz file; unpack it first"),
    (0, b"7z\xbc\xaf", "a 7z file; unpack it first"),
    (257, b"ustar", "a tar file; unpack it first"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (0, b"<!DOCTYPE", "a web page"),
    (0, b"<html", "a web page"),
)


def recognize(path: Path) -> ModelFormat:
    """Find a model's format.

    Raises:
        JobError: ``model-not-recognized`` with the apparent type of the file, ``model-damaged``, or
            ``model-unsafe-archive``.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(ZIP_MAGIC):
        return _recognize_archive(path, check_archive(path))
    if is_module_text(head):
        return ModelFormat.IR_MODULE
    legacy = legacy_root(head)
    if legacy is not None:
        return _recognize_saved(legacy)
    raise _not_recognized(_describe(head))


def _recognize_archive(path: Path, archive: Archive) -> ModelFormat:
    if _is_pt2(path, archive):
        return ModelFormat.PT2
    if "constants.pkl" in archive.names and archive.has_folder("code"):
        return ModelFormat.TORCHSCRIPT
    if is_module_archive(archive.names):
        return ModelFormat.IR_MODULE
    if "data.pkl" in archive.names:
        root = pickle_root(read_entry(path, "data.pkl") or b"")
        if root is None:
            raise _not_recognized("a file of `torch.save` with a plain value, not a model")
        return _recognize_saved(root)
    raise _not_recognized(_describe_archive(archive))


def _is_pt2(path: Path, archive: Archive) -> bool:
    if "serialized_exported_program.json" in archive.names:
        return True
    if "archive_format" not in archive.names:
        return False
    if read_entry(path, "archive_format") != b"pt2":
        return False
    if any(map(MODEL_ENTRY.fullmatch, archive.names)):
        return True
    raise _not_recognized("a .pt2 archive without an exported program")


def _recognize_saved(root: Root) -> ModelFormat:
    if root.module == "torch.fx.graph_module" and root.name in FX_MAKERS:
        return ModelFormat.FX
    if root.is_container:
        raise _not_recognized(f"a state_dict or checkpoint: {WEIGHTS_ONLY}")
    if root.module.startswith("torch._utils"):
        raise _not_recognized("a single tensor, not a model")
    raise _not_recognized(
        f"a pickled object of {root}, a class that only your program has; export the module with "
        "`torch.export.export` and save the program with `torch.export.save`"
    )


def _describe_archive(archive: Archive) -> str:
    if any(name.endswith(".npy") for name in archive.names):
        return "a NumPy archive of arrays"
    if "model.weights.h5" in archive.names:
        return "a Keras model"
    if "META-INF/MANIFEST.MF" in archive.names:
        return "a Java archive"
    return "a zip archive that torch did not write"


def _describe(head: bytes) -> str:
    for offset, magic, description in MAGICS:
        if head[offset : offset + len(magic)] == magic:
            return description
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 30:
        return f"a safetensors file: {WEIGHTS_ONLY}"
    if head[:1] == b"\x08" and head[1:2] < b"\x20" and (b"onnx" in head[:4096] or head[2:3] in b"\x12\x1a:"):
        return "an ONNX file; export the PyTorch model that it was converted from"
    if head[:1] == b"\x80" and pickle_root(head) is not None:
        return f"a plain pickle of {pickle_root(head)}, not a file of `torch.save`"
    if is_python(head):
        return (
            "a Python file that does not import TVM, so it has no IRModule; to compile a model that one of "
            "its functions returns, name the function: `bessemer compile net.py:FUNCTION`"
        )
    return NOTHING_KNOWN if head else "empty"


def _not_recognized(what: str) -> JobError:
    return JobError(ErrorCode.MODEL_NOT_RECOGNIZED, f"the file is {what}")
