"""Kernels in C as LLVM's intermediate language, made where there is a compiler and kept beside their sources.

A confined job has no compiler. What is kept names no processor and no system: TVM sets the target's when it
imports the code (``pragma_import_llvm``) and inlines it. ``python -m
worker.compiler.spaces.llvm_ir`` writes the files again, which zig's clang must do with the LLVM
version that TVM reads.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from worker.compiler.codegen.link import linker_path

KERNELS = Path(__file__).parent / "kernels"

_FLAGS = (
    *("-O2", "-g0", "-ffreestanding", "-fno-sanitize=all", "-fno-strict-aliasing", "-fomit-frame-pointer"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-fno-stack-protector"),
)
_COMPILED_FOR = "x86_64-linux-gnu"
_OF_A_TARGET = re.compile(r' "(?:target-cpu|target-features|tune-cpu)"="[^"]*"')
_OF_A_FILE = re.compile(
    r"^(?:target |source_filename|; ModuleID|!llvm\.(?:module\.flags|ident)|!\d+ = !\{(?:i32|!\"clang)).*\n",
    re.MULTILINE,
)


def read_kernel(name: str) -> str:
    """The intermediate language of a kernel in ``KERNELS``."""
    return (KERNELS / f"{name}.ll").read_text(encoding="utf-8")


def compile_kernel(source: Path) -> str:
    """Compile a file of C to the intermediate language, without what is of one target.

    Raises:
        subprocess.CalledProcessError: the compiler refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.ll"
        compiler = (str(linker_path()), "cc", "-target", _COMPILED_FOR)
        files = ("-S", "-emit-llvm", "-o", str(output), str(source))
        subprocess.run([*compiler, *_FLAGS, *files], check=True, capture_output=True)
        text = output.read_text(encoding="utf-8")
    return _OF_A_FILE.sub("", _OF_A_TARGET.sub("", text))


def write_kernels() -> None:
    """Compile every source in ``KERNELS``."""
    for source in sorted(KERNELS.glob("*.c")):
        source.with_suffix(".ll").write_text(compile_kernel(source), encoding="utf-8")


if __name__ == "__main__":
    write_kernels()
