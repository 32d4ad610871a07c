"""Name clothes in pictures: ``python -m examples.course.name_clothes [PICTURE …]``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from bessemer.bundle.run import Model, load
from bessemer.client import Client
from bessemer.contract.options import InspectOptions
from examples.course.session import run, trained
from examples.models.clothes import CLASSES, DRAWINGS, SIDE, as_text, draw, read


def show(client: Client, folder: Path) -> None:
    """The libraries of both networks name every drawing rightly; given pictures are named instead."""
    given = {path: read(Path(path)) for path in sys.argv[1:]} if __name__ == "__main__" else {}
    mlp, cnn = (_compile(client, network, folder) for network in ("mlp", "cnn"))
    for title, image in (given or {name: draw(name) for name in DRAWINGS}).items():
        words = _word(mlp, image), _word(cnn, image)
        print(f"\n{title}\n{as_text(image)}\nthe mlp says {words[0]}, the cnn says {words[1]}")
        assert given or set(words) == {title}


def _compile(client: Client, network: str, folder: Path) -> Model:
    """The library; its report shows the image that it was verified with."""
    options = InspectOptions(images={"x": (SIDE, SIDE)})
    job = client.submit(trained(network, folder), target="host", inspect=options).wait()
    bundle = job.download(folder / network)
    assert '<img src="data:image/png;base64,' in (bundle / "report.html").read_text()
    return load(bundle)


def _word(library: Model, image: torch.Tensor) -> str:
    (logits,) = library.run({"x": image.reshape(library.inputs[0].shape).numpy()}).values()
    return CLASSES[int(logits.argmax())]


if __name__ == "__main__":
    run(show)
