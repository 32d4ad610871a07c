"""Who may import whom, read from the source."""

import ast
from pathlib import Path

import pytest

from bessemer.contract.stage import Stage

ROOT = Path(__file__).parents[2]
COMPILERS = ("torch", "tvm", "tvm_ffi")

RULES = [
    ("bessemer/contract", ("bessemer.store", "bessemer.client", "bessemer.cli", "app", "worker", *COMPILERS)),
    ("bessemer/store", ("bessemer.client", "bessemer.cli", "app", "worker", *COMPILERS)),
    ("bessemer/client", ("bessemer.store", "bessemer.cli", "app", "worker")),
    ("bessemer/cli", ("bessemer.store", "app", "worker", *COMPILERS)),
    ("app", ("worker", "bessemer.client", "bessemer.cli", *COMPILERS)),
    ("worker", ("app", "bessemer.client", "bessemer.cli")),
    ("worker/formats", ("worker.pipeline",)),
    ("worker/torchscript", ("worker.pipeline",)),
    ("worker/candidates", ("worker.pipeline", "worker.tuning")),
    ("worker/measure", ("worker.pipeline", "worker.candidates", *COMPILERS)),
    ("worker/tuning", tuple(f"worker.pipeline.{stage}" for stage in Stage)),
    ("worker/report", ("worker.pipeline",)),
]
SUPERVISOR = (
    "__main__",
    "supervisor",
    "job",
    "ending",
    "collect",
    "watch",
    "zygote_handle",
    "settings",
    "order",
    "messages",
)


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


@pytest.mark.parametrize("module", SUPERVISOR)
def test_the_supervisor_names_neither_torch_nor_tvm(module: str) -> None:
    assert offences(ROOT / "worker" / f"{module}.py", COMPILERS) == set()
