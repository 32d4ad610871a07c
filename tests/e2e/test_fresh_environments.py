"""A user installs few packages."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from saved_models import Saved

from bessemer.client import Client
from examples.local_service import ROOT
from examples.models.save import SavedAs

HEAVY = ("torch", "tvm", "fastapi", "app", "worker")
PRINT_HEAVY = f"import importlib.util; print([n for n in {HEAVY} if importlib.util.find_spec(n)])"

Environment = Callable[[str, tuple[str, ...]], Path]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Makes an environment with some packages and returns its Python."""

    def make(name: str, packages: tuple[str, ...]) -> Path:
        folder = tmp_path_factory.mktemp(name)
        python = folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        subprocess.run([*pip, *packages], check=True)
        return python

    return make


def test_a_bundle_runs_with_numpy_and_the_ffi_alone(
    service: str, saved: Saved, tmp_path: Path, environment: Environment
) -> None:
    with Client(service) as client:
        client.submit(saved.path("mlp", SavedAs.PT2), target="host").wait().download(tmp_path)
    python = environment("runner", ("numpy", "apache-tvm-ffi==0.1.14.post1"))
    result = subprocess.run([python, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "matches the reference" in result.stdout


def test_a_client_compiles_without_torch_tvm_or_fastapi(
    service: str, saved: Saved, tmp_path: Path, environment: Environment
) -> None:
    python = environment("client", (str(ROOT),))
    found = subprocess.run(
        [python, "-c", PRINT_HEAVY], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
    command = [
        python.parent / "bessemer",
        "compile",
        saved.path("mlp", SavedAs.PT2),
        "--target",
        "host",
        "--json",
    ]
    result = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={"BESSEMER_URL": service}
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["verified"] is True
    assert document["figures"]["latency"]["p50_ms"] > 0
