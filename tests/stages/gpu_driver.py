"""The driver of ``fake_driver.c``, compiled."""

from __future__ import annotations

from pathlib import Path

from worker.compiler.codegen.link import run_zig


def build_driver(folder: Path) -> Path:
    """Compile the driver as ``libcuda.so.1`` in a folder, and return that."""
    source = Path(__file__).with_name("fake_driver.c")
    run_zig("cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(folder / "libcuda.so.1"))
    return folder
