"""Run one library with two sets of weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from bessemer.client import Client
from examples.course.session import logits_of, run, run_bundle, trained
from examples.models import EXAMPLES


def show(client: Client, folder: Path) -> None:
    """Run the CNN's library with its own weights and with others; it rejects the MLP's."""
    job = client.submit(trained("cnn", folder), target="host", parameters="separate").wait()
    bundle = job.download(folder / "bundle")
    parameters = json.loads((bundle / "manifest.json").read_text())["parameters"]
    for tensor in parameters["tensors"]:
        print(f"{tensor['name']:<16}{tensor['shape']!s:<16}{tensor['dtype']}")

    network = EXAMPLES["cnn"].build()
    (image,) = EXAMPLES["cnn"].example_inputs(seed=1)
    np.testing.assert_allclose(
        logits_of(bundle, image, folder), _expected(network, image), rtol=1e-4, atol=1e-4
    )
    with torch.no_grad():
        network.classes.bias += 100
    save_file(network.state_dict(), bundle / "params.safetensors")
    swapped = logits_of(bundle, image, folder)
    print(f"with other weights, the same library gives {np.array2string(swapped, precision=1)}")
    np.testing.assert_allclose(swapped, _expected(network, image), rtol=1e-4, atol=1e-4)

    save_file(EXAMPLES["mlp"].build().state_dict(), bundle / "params.safetensors")
    refused = run_bundle(bundle, image, folder)
    print(refused.stderr.strip())
    assert refused.returncode == 1
    assert "does not fit the library" in refused.stderr


def _expected(network: nn.Module, image: torch.Tensor) -> np.ndarray:
    with torch.inference_mode():
        return network(image).numpy()


if __name__ == "__main__":
    run(show)
