"""Shared helpers: the trained networks, and a service to run one example."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bessemer.client import Client, Job
from bessemer.contract.options import InspectOptions
from bessemer.contract.report import Report
from bessemer.contract.request import CompilationRequest, Verification
from bessemer.contract.target import PresetTarget
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

GPU = "cuda-sm_90"
RUNTIME = "runtime"
"""The report's name for the time between functions."""

Show = Callable[[Client, Path], None]


def trained(name: str, folder: Path, saved_as: SavedAs = SavedAs.PT2) -> Path:
    """Write a trained network, ``mlp`` or ``cnn``, to ``folder`` and return its path."""
    path = folder / f"{name}-{saved_as.value}.model"
    save(EXAMPLES[name], saved_as, path)
    return path


def exported(module: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> Path:
    """Export a module to a file."""
    torch.export.save(torch.export.export(module, inputs), path)
    return path


def compiled_for_gpu(client: Client, program: Path) -> Job:
    """Compile a program for a GPU. No worker needs one, because nothing runs the library."""
    request = CompilationRequest(
        model=client.upload(program).digest,
        target=PresetTarget(preset=GPU),
        verification=Verification.NONE,
        inspect=InspectOptions(ir=True),
    )
    return client.post(request).wait()


def shown_usage(job: Job) -> str:
    """What the assembler reports about a library's only kernel."""
    (kernel,) = job.report().gpu_kernels
    return (
        f"{kernel.registers} registers, {kernel.shared_bytes} bytes of shared memory, "
        f"{kernel.spilled_bytes} bytes spilled"
    )


def functions_of(report: Report) -> dict[str, int]:
    """The functions that the library calls in one run, by name, with their counts."""
    assert report.benchmark is not None
    counts = {one.name: one.calls for one in report.benchmark.functions if one.name != RUNTIME}
    return dict(sorted(counts.items()))


def run_bundle(bundle: Path, image: torch.Tensor, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a bundle's library on an image without torch, and write ``logits.npz`` to ``folder``."""
    np.save(folder / "x.npy", image.numpy())
    command = [sys.executable, bundle / "run.py", "--input", f"x={folder / 'x.npy'}", "--output"]
    return subprocess.run([*command, folder / "logits.npz"], capture_output=True, text=True, check=False)


def logits_of(bundle: Path, image: torch.Tensor, folder: Path) -> np.ndarray:
    """Run a bundle's library on an image and return the logits."""
    run_bundle(bundle, image, folder).check_returncode()
    with np.load(folder / "logits.npz") as outputs:
        (logits,) = outputs.values()
    return np.asarray(logits)


def body_of(function: str, assembly: str) -> list[str]:
    """The instructions of a kernel in a library's assembly, including those that its threads run."""
    lines = iter(assembly.splitlines())
    label = f"{function}_compute_:"
    assert any(line.startswith(label) for line in lines), f"{label} is not in the assembly"
    body = takewhile(lambda line: not line.startswith("__tvm_ffi_main:"), lines)
    return [line.strip() for line in body if line.startswith("\t") and not line.startswith("\t.")]


def run(show: Show) -> None:
    """Run one example with its own service."""
    with (
        tempfile.TemporaryDirectory(prefix="bessemer-course-") as folder,
        local_service(Path(folder) / "service") as url,
        Client(url) as client,
    ):
        show(client, Path(folder))
