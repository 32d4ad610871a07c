"""Who may import whom, read from the source."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bessemer.contract.stage import Stage

ROOT = Path(__file__).parents[2]
COMPILERS = ("torch", "tvm", "tvm_ffi")
SERVICE = ("bessemer.store", "bessemer.client", "bessemer.cli", "app", "worker")

RULES = [
    ("bessemer/contract", (*SERVICE, "bessemer.bundle", "bessemer.errors", *COMPILERS)),
    ("bessemer/store", ("bessemer.client", "bessemer.cli", "bessemer.bundle", "app", "worker", *COMPILERS)),
    ("bessemer/gate", (*SERVICE, "bessemer.bundle", "bessemer.telemetry", *COMPILERS)),
    (
        "bessemer/telemetry",
        ("bessemer.store", "bessemer.client", "bessemer.cli", "bessemer.bundle", "app", "worker", *COMPILERS),
    ),
    ("bessemer/bundle", (*SERVICE, "torch", "tvm")),
    ("bessemer/client", ("bessemer.store", "bessemer.cli", "app", "worker", *COMPILERS)),
    ("bessemer/cli", ("bessemer.store", "app", "worker", *COMPILERS)),
    ("app", ("worker", "bessemer.client", "bessemer.cli", *COMPILERS)),
    ("worker", ("app", "bessemer.client", "bessemer.cli")),
    ("worker/supervisor", ("worker.pipeline", "worker.candidates", "worker.child", *COMPILERS)),
    ("worker/formats", ("worker.pipeline",)),
    ("worker/torchscript", ("worker.pipeline",)),
    ("worker/codegen", ("worker.pipeline", "worker.tuning", "worker.translation")),
    ("worker/candidates", ("worker.codegen", "worker.pipeline", "worker.tuning")),
    ("worker/measure", ("worker.pipeline", "worker.candidates", *COMPILERS)),
    ("worker/tuning", tuple(f"worker.pipeline.{stage}" for stage in Stage)),
    ("worker/kernels", ("worker.pipeline", "worker.tuning")),
    ("worker/report", ("worker.pipeline",)),
    ("worker/snapshots", ("worker.pipeline", "worker.tuning", "worker.translation")),
    ("worker/schedules", ("worker.pipeline", "worker.tuning", "worker.translation", "worker.layout")),
    ("worker/layout", ("worker.codegen", "worker.pipeline", "worker.tuning", "worker.translation")),
    ("worker/rewrites", ("worker.pipeline", "worker.tuning", "worker.translation", "worker.schedules")),
    ("worker/translation", ("worker.pipeline", "worker.tuning", "worker.schedules", "worker.layout")),
]
WITHOUT_COMPILERS = ("worker.__main__", "app.__main__", "bessemer.client", "bessemer.cli")
OF_ITS_USER = {"bessemer/client/exporting.py", "bessemer/client/transport.py"}
"""Where the client takes the torch, or the OpenTelemetry, that its user's program has imported."""


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


def offences(path: Path, forbidden: tuple[str, ...]) -> set[str]:
    return {
        name
        for name in imported(path)
        if any(name == root or name.startswith(f"{root}.") for root in forbidden)
    }


@pytest.mark.parametrize(("folder", "forbidden"), RULES, ids=[folder for folder, _ in RULES])
def test_imports_go_one_way(folder: str, forbidden: tuple[str, ...]) -> None:
    found = {str(path): offences(path, forbidden) for path in (ROOT / folder).rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("module", WITHOUT_COMPILERS)
def test_a_program_without_models_loads_neither_torch_nor_tvm(module: str) -> None:
    check = f"import sys, {module}; print(sorted({set(COMPILERS)!r} & set(sys.modules)))"
    shown = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert shown.stdout.strip() == "[]"


def test_the_client_takes_what_its_user_imported_in_few_places() -> None:
    taking = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "bessemer" / "client").rglob("*.py")
        if re.search(r"sys\.modules|import_module|__import__", path.read_text())
    }
    assert taking == OF_ITS_USER
