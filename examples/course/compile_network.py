"""Compile the trained MLP and run its library without torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bessemer.client import Client
from examples.course.session import logits_of, run, trained
from examples.models import EXAMPLES
from examples.models.clothes import CLASSES, as_text


def show(client: Client, folder: Path) -> None:
    """Compile an exported program and compare the library's logits with torch's."""
    job = client.submit(trained("mlp", folder), target="host").wait()
    bundle = job.download(folder / "bundle")
    (image,) = EXAMPLES["mlp"].example_inputs(seed=1)
    logits = logits_of(bundle, image, folder)
    with torch.inference_mode():
        expected = EXAMPLES["mlp"].build()(image).numpy()
    print(f"the library's logits: {np.array2string(logits, precision=2)}")
    print(f"torch's logits:       {np.array2string(expected, precision=2)}")
    print(f"{as_text(image)}\nThis is a picture of: {CLASSES[int(logits.argmax())]}")
    assert job.document.verified
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    run(show)
