"""Name clothes in pictures: ``python -m examples.course.name_clothes [PICTURE …]``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from bessemer.client import Client
from bessemer.contract.options import InspectOptions
from examples.course.session import run, trained
from examples.models.clothes import CLASSES, DRAWINGS, SIDE, as_text, draw, read

RUN = """
import numpy as np
from run import load  # run.py of the bundle

model = load(".")
for image in np.load("images.npy"):
    (logits,) = model.run({"x": image.reshape(model.inputs[0].shape)}).values()
    print(logits.argmax())
"""


def show(client: Client, folder: Path) -> None:
    """Name each drawing, or each given picture, with both networks. They name the drawings correctly."""
    given = {path: read(Path(path)) for path in sys.argv[1:]} if __name__ == "__main__" else {}
    images = given or {name: draw(name) for name in DRAWINGS}
    mlp, cnn = (_words(_compile(client, each, folder), list(images.values())) for each in ("mlp", "cnn"))
    for (title, image), *words in zip(images.items(), mlp, cnn, strict=True):
        print(f"\n{title}\n{as_text(image)}\nthe mlp says {words[0]}, the cnn says {words[1]}")
        assert given or set(words) == {title}


def _compile(client: Client, network: str, folder: Path) -> Path:
    """Compile a network. The bundle's report shows the image that the library was verified with."""
    options = InspectOptions(images={"x": (SIDE, SIDE)})
    job = client.submit(trained(network, folder), target="host", inspect=options).wait()
    bundle = job.download(folder / network)
    assert '<img src="data:image/png;base64,' in (bundle / "report.html").read_text()
    return bundle


def _words(bundle: Path, images: Sequence[torch.Tensor]) -> list[str]:
    """The classes that a library finds in images, from a process without torch."""
    np.save(bundle / "images.npy", torch.stack(list(images)).numpy())
    command = [sys.executable, "-c", RUN]
    ran = subprocess.run(command, cwd=bundle, check=True, capture_output=True, text=True)
    return [CLASSES[int(line)] for line in ran.stdout.splitlines()]


if __name__ == "__main__":
    run(show)
