"""Import rules that import-linter cannot check; pyproject.toml has the layers, which `make lint` checks."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILERS = ("torch", "tvm", "tvm_ffi")
EXTENSIBLE = ("kernels", "legalize", "rewrites", "spaces", "translation")
WITHOUT_COMPILERS = (
    "worker.supervisor.program",
    "app.program",
    "bessemer.client",
    "bessemer.cli.application",
)
OF_ITS_USER = {
    "bessemer/client/exporting.py",
    "bessemer/client/ir_modules.py",
    "bessemer/client/transport.py",
}
"""Modules of the client that use the torch, TVM, NumPy or OpenTelemetry imported by the user's program."""


@pytest.mark.parametrize("package", EXTENSIBLE)
def test_the_built_in_extensions_lie_beside_their_registry(package: str) -> None:
    folder = f"worker.compiler.{package}."
    values = importlib.import_module(f"{folder}registry").POINT.built_in
    assert values
    assert [value for value in values if not value.startswith(folder)] == []


@pytest.mark.parametrize("module", WITHOUT_COMPILERS)
def test_a_program_without_models_loads_neither_torch_nor_tvm(module: str) -> None:
    check = f"import sys, {module}; print(sorted({set(COMPILERS)!r} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.strip() == "[]"


def test_the_client_uses_the_users_imports_in_few_places() -> None:
    taking = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "bessemer" / "client").rglob("*.py")
        if re.search(r"sys\.modules|import_module|__import__", path.read_text())
    }
    assert taking == OF_ITS_USER
