"""What the examples share: the course's trained networks on disk, and a service to run one example alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bessemer.client import Client
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

Show = Callable[[Client, Path], None]


def trained(name: str, folder: Path, saved_as: SavedAs = SavedAs.PT2) -> Path:
    """The file of a trained network, ``mlp`` or ``cnn``, written to ``folder``."""
    path = folder / f"{name}-{saved_as.value}.model"
    save(EXAMPLES[name], saved_as, path)
    return path


def run(show: Show) -> None:
    """Run one example through a service that lives as long."""
    with (
        tempfile.TemporaryDirectory(prefix="bessemer-course-") as folder,
        local_service(Path(folder) / "service") as url,
        Client(url) as client,
    ):
        show(client, Path(folder))
