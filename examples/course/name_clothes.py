"""Name clothes in pictures: ``python -m examples.course.name_clothes [PICTURE …]``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from bessemer.client import Client
from bessemer.contract.options import InspectOptions
from examples.course.session import logits_of, run, trained
from examples.models import EXAMPLES
from examples.models.clothes import CLASSES, DRAWINGS, SIDE, as_text, draw, read


def show(client: Client, folder: Path) -> None:
    """Both networks' libraries name every drawing rightly; given pictures are named instead."""
    given = {path: read(Path(path)) for path in sys.argv[1:]} if __name__ == "__main__" else {}
    named = _name(client, folder, given or {name: draw(name) for name in DRAWINGS})
    for name, words in named.items():
        assert given or set(words) == {name}, f"the networks call the drawing of {name} {words}"


def _name(client: Client, folder: Path, images: Mapping[str, torch.Tensor]) -> dict[str, list[str]]:
    """The words of the libraries of both networks for each image, which it prints."""
    bundles = {name: _compile(client, name, folder) for name in ("mlp", "cnn")}
    found = {}
    for name, image in images.items():
        print(f"\n{name}\n{as_text(image)}")
        found[name] = [
            _word(bundle, image.reshape(EXAMPLES[network].inputs[0].shape), folder)
            for network, bundle in bundles.items()
        ]
        print(
            ", ".join(
                f"the {network} says {word}" for network, word in zip(bundles, found[name], strict=True)
            )
        )
    return found


def _compile(client: Client, network: str, folder: Path) -> Path:
    """The bundle; its report shows the image that the library was verified with."""
    shown = InspectOptions(images={"x": (SIDE, SIDE)})
    bundle = (
        client.submit(trained(network, folder), target="host", inspect=shown)
        .wait()
        .download(folder / network)
    )
    assert '<img src="data:image/png;base64,' in (bundle / "report.html").read_text()
    return bundle


def _word(bundle: Path, image: torch.Tensor, folder: Path) -> str:
    return CLASSES[int(logits_of(bundle, image, folder).argmax())]


if __name__ == "__main__":
    run(show)
