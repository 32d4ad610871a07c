"""Unpacks and runs bundles as their README describes."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(__file__).parents[1] / "without_torch"),
    "TVM_NUM_THREADS": "2",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")


def unpacked(archive: Path, folder: Path) -> Path:
    """The folder, with the files of a ``bundle.tar.zst``."""
    raw = zstandard.ZstdDecompressor().stream_reader(archive.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as files:
        files.extractall(folder, filter="data")
    return folder


def paste_program(folder: Path) -> str:
    """Save the README's program and return the commands that compile and run it."""
    chapter = (folder / "README.md").read_text().partition("## Run it from C++")[2]
    source, _, rest = chapter.partition("```cpp\n")[2].partition("```")
    (folder / "main.cc").write_text(source)
    return "\n".join(line for line in rest.splitlines() if line.startswith("    "))


def execute(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=500
    )


def printed(output: str) -> dict[str, list[float]]:
    lines = (line.partition(": ") for line in output.splitlines())
    return {name: [float(number) for number in numbers.split()] for name, _, numbers in lines}
