"""C kernels as LLVM IR, compiled in advance and kept beside their sources.

A confined job has no compiler. The files name no processor or system; TVM sets those of the target when it
imports (``pragma_import_llvm``) and inlines the code. ``python -m worker.compiler.spaces.llvm_ir`` writes
them again with zig's clang, whose LLVM version must be TVM's.
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
    """The LLVM IR of a kernel in ``KERNELS``."""
    return (KERNELS / f"{name}.ll").read_text(encoding="utf-8")


def compile_kernel(source: Path) -> str:
    """Compile a C file to LLVM IR without the parts that name a target.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
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
