"""LLVM IR and assembly of a compiled module's kernels."""

from __future__ import annotations

from pathlib import Path

from tvm import relax

LLVM_IR = "model.ll"
ASSEMBLY = "model.s"
MAX_BYTES = 1 << 26

_FORMATS = {LLVM_IR: "ll", ASSEMBLY: "asm"}
_LLVM = "llvm"


def write_machine_code(executable: relax.VMExecutable, folder: Path) -> None:
    """Write ``model.ll`` and ``model.s``: those of each module that LLVM made, one after another.

    They are empty for a model without kernels. What is longer than ``MAX_BYTES`` is cut.
    """
    modules = [module for module in executable.mod.imports if module.kind == _LLVM]
    for name, kind in _FORMATS.items():
        text = "\n".join(str(module.inspect_source(kind)) for module in modules)
        (folder / name).write_bytes(text.encode()[:MAX_BYTES])
