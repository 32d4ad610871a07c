"""One library, the weights of two trainings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bessemer.client import Client
from examples.course.session import run, trained
from examples.models import EXAMPLES
from worker.parameters import write_parameters


def show(client: Client, folder: Path) -> None:
    """The CNN's library runs with the weights beside it, then with others, and refuses those of the MLP."""
    job = client.submit(trained("cnn", folder), target="host", parameters="separate").wait()
    bundle = job.download(folder / "bundle")
    parameters = json.loads((bundle / "manifest.json").read_text())["parameters"]
    for tensor in parameters["tensors"]:
        print(f"{tensor['name']:<16}{tensor['shape']!s:<16}{tensor['dtype']}")

    network = EXAMPLES["cnn"].build()
    (image,) = EXAMPLES["cnn"].example_inputs(seed=1)
    np.testing.assert_allclose(
        _logits(bundle, image, folder), _expected(network, image), rtol=1e-4, atol=1e-4
    )
    with torch.no_grad():
        network.classes.bias += 100
    write_parameters(bundle / "params.safetensors", network.state_dict())
    swapped = _logits(bundle, image, folder)
    print(f"with other weights, the same library gives {np.array2string(swapped, precision=1)}")
    np.testing.assert_allclose(swapped, _expected(network, image), rtol=1e-4, atol=1e-4)

    write_parameters(bundle / "params.safetensors", EXAMPLES["mlp"].build().state_dict())
    refused = _run(bundle, image, folder)
    print(refused.stderr.strip())
    assert refused.returncode == 1
    assert "does not fit the library" in refused.stderr


def _expected(network: nn.Module, image: torch.Tensor) -> np.ndarray:
    with torch.inference_mode():
        return network(image).numpy()


def _logits(bundle: Path, image: torch.Tensor, folder: Path) -> np.ndarray:
    _run(bundle, image, folder).check_returncode()
    with np.load(folder / "logits.npz") as outputs:
        (logits,) = outputs.values()
    return np.asarray(logits)


def _run(bundle: Path, image: torch.Tensor, folder: Path) -> subprocess.CompletedProcess[str]:
    np.save(folder / "x.npy", image.numpy())
    given = ["--input", f"x={folder / 'x.npy'}", "--output", folder / "logits.npz"]
    return subprocess.run(
        [sys.executable, bundle / "run.py", *given], capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    run(show)
