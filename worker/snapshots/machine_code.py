"""Writes the LLVM IR and the assembly of a compiled module's kernels."""

from __future__ import annotations

from pathlib import Path

import tvm

LLVM_IR = "model.ll"
ASSEMBLY = "model.s"
MAX_BYTES = 1 << 26

_KINDS = {".ll": "ll", ".s": "asm"}


def write_sources(kernels: tvm.runtime.Module, compiled: Path) -> None:
    """Write the LLVM IR and the assembly of some kernels beside their object, as ``.ll`` and ``.s``."""
    for suffix, kind in _KINDS.items():
        compiled.with_suffix(suffix).write_text(str(kernels.inspect_source(kind)), encoding="utf-8")


def join_sources(objects: Path, folder: Path) -> None:
    """Concatenate the sources beside all objects into ``model.ll`` and ``model.s``.

    Both are empty for a model without kernels, and cut at ``MAX_BYTES``.
    """
    for name in (LLVM_IR, ASSEMBLY):
        left_bytes = MAX_BYTES
        with (folder / name).open("wb") as joined:
            for path in sorted(objects.glob(f"*{Path(name).suffix}")):
                left_bytes -= joined.write(path.read_bytes()[:left_bytes])
