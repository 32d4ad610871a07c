"""Use kernel libraries: OpenBLAS and a ReLU in C, linked into the model's library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bessemer.client import Client
from examples.course.session import run, trained

NARROW = "linear[1x128,128x10,10]"
"""The MLP's second layer, as the report names it."""

FORCED = {"linear": "openblas"}
MIXED = {NARROW: "openblas", "relu": "c"}


def show(client: Client, folder: Path) -> None:
    """Compile the MLP with OpenBLAS, then with OpenBLAS and C, then with the faster kernel of each layer."""
    for name, kernels, used in (
        ("forced", FORCED, {"bessemer_openblas_linear_bias_relu", "bessemer_openblas_linear_bias"}),
        ("mixed", MIXED, {"bessemer_relu", "bessemer_openblas_linear_bias"}),
    ):
        report = _compile(client, folder, name, kernels)
        functions = {function["name"] for function in report["benchmark"]["functions"]}
        print(f"{kernels}: {', '.join(sorted(functions - {'runtime'}))}")
        assert {entry["symbol"] for entry in report["kernels"] if entry["used"]} == used
        assert used <= functions
    for entry in _compile(client, folder, "auto", {"linear": "auto"})["kernels"]:
        print(
            f"{entry['workload']}: OpenBLAS {entry['kernel_ms']:.4f} ms, generated {entry['own_ms']:.4f} ms"
        )
        assert entry["kernel_ms"] > 0
        assert entry["own_ms"] > 0


def _compile(client: Client, folder: Path, name: str, kernels: dict[str, str]) -> dict[str, Any]:
    """Compile, check the bundle against its reference in a new process, and return its report."""
    job = client.submit(trained("mlp", folder), target="host", kernels=kernels).wait()
    bundle = job.download(folder / name)
    subprocess.run([sys.executable, bundle / "run.py"], check=True, capture_output=True)
    report: dict[str, Any] = json.loads((bundle / "report.json").read_text())
    return report


if __name__ == "__main__":
    run(show)
