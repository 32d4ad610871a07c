"""Compile the trained MLP and run its library without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from bessemer.client import Client
from examples.course.session import run, trained
from examples.models import EXAMPLES


def show(client: Client, folder: Path) -> None:
    """An exported program becomes a library that gives the same logits for an image."""
    job = client.submit(trained("mlp", folder), target="host").wait()
    bundle = job.download(folder / "bundle")
    (image,) = EXAMPLES["mlp"].example_inputs(seed=1)
    logits = _run(bundle, image.numpy(), folder)
    with torch.inference_mode():
        expected = EXAMPLES["mlp"].build()(image).numpy()
    print(f"the library's logits: {np.array2string(logits, precision=2)}")
    print(f"torch's logits:       {np.array2string(expected, precision=2)}")
    assert job.document.verified
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def _run(bundle: Path, image: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "x.npy", image)
    command = [sys.executable, bundle / "run.py", "--input", f"x={folder / 'x.npy'}", "--output"]
    subprocess.run([*command, folder / "logits.npz"], check=True, capture_output=True)
    (logits,) = np.load(folder / "logits.npz").values()
    return np.asarray(logits)


if __name__ == "__main__":
    run(show)
