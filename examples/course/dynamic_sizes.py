"""Compile one library for every batch size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bessemer.client import Client
from examples.course.session import logits_of, run, run_bundle
from examples.models import EXAMPLES
from examples.models.clothes import CLASSES, DRAWINGS, draw

LARGEST = 64


def show(client: Client, folder: Path) -> None:
    """Compile the MLP with a dynamic batch. It takes 1, 7 and 64 images, and rejects a larger batch."""
    network = EXAMPLES["mlp"].build()
    graph = torch.fx.symbolic_trace(network)
    ranges = {"batch": (1, LARGEST)}
    job = client.submit(graph, inputs={"x": ("batch", 784)}, dimensions=ranges, target="host").wait()
    bundle = job.download(folder / "bundle")
    drawings = torch.stack([draw(name) for name in DRAWINGS]).reshape(-1, 784)
    for size in (1, 7, LARGEST):
        images = drawings.repeat(LARGEST // len(drawings), 1)[:size]
        logits = logits_of(bundle, images, folder)
        words = [CLASSES[int(row.argmax())] for row in logits]
        print(f"batch {size}: {', '.join(words[:7])}{', …' if size > 7 else ''}")
        with torch.inference_mode():
            np.testing.assert_allclose(logits, network(images).numpy(), rtol=1e-4, atol=1e-4)

    refused = run_bundle(bundle, torch.zeros(LARGEST + 1, 784), folder)
    print(refused.stderr.strip())
    assert refused.returncode == 2
    assert f"batch from 1 to {LARGEST}" in refused.stderr


if __name__ == "__main__":
    run(show)
