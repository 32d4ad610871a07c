"""What the examples share: the course's trained networks on disk, and a service to run one example alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bessemer.client import Client, Job
from bessemer.contract.report import Report
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

RUNTIME = "runtime"
"""What a report calls the time between a library's functions."""

Show = Callable[[Client, Path], None]


def trained(name: str, folder: Path, saved_as: SavedAs = SavedAs.PT2) -> Path:
    """The file of a trained network, ``mlp`` or ``cnn``, written to ``folder``."""
    path = folder / f"{name}-{saved_as.value}.model"
    save(EXAMPLES[name], saved_as, path)
    return path


def exported(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> Path:
    """The file of a module as an exported program."""
    torch.export.save(torch.export.export(module, inputs), path)
    return path


def read_report(job: Job, folder: Path) -> Report:
    """The report of a finished compilation."""
    path = job.download_artifact("report.json", folder / f"{job.document.id}.json")
    return Report.model_validate_json(path.read_text())


def functions_of(report: Report) -> dict[str, int]:
    """The functions that a library calls, and how often in one run of the model."""
    return {one.name: one.calls for one in report.benchmark.functions if one.name != RUNTIME}


def try_bundle(bundle: Path, x: torch.Tensor, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a bundle's ``run.py`` on its input ``x``; it writes ``folder / "outputs.npz"``."""
    np.save(folder / "x.npy", x.numpy())
    given = ["--input", f"x={folder / 'x.npy'}", "--output", folder / "outputs.npz"]
    return subprocess.run(
        [sys.executable, bundle / "run.py", *given], capture_output=True, text=True, check=False
    )


def run_bundle(bundle: Path, x: torch.Tensor, folder: Path) -> np.ndarray:
    """The one output of a bundle for its input ``x``, without torch."""
    try_bundle(bundle, x, folder).check_returncode()
    with np.load(folder / "outputs.npz") as outputs:
        (output,) = outputs.values()
    return np.asarray(output)


def run(show: Show) -> None:
    """Run one example through a service that lives as long."""
    with (
        tempfile.TemporaryDirectory(prefix="bessemer-course-") as folder,
        local_service(Path(folder) / "service") as url,
        Client(url) as client,
    ):
        show(client, Path(folder))
