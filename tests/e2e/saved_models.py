"""Example models on disk."""

from pathlib import Path

from examples.models import EXAMPLES
from examples.models.save import SavedAs, save


class Saved:
    """Example models on disk, each written once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str, saved_as: SavedAs) -> Path:
        """The file of an example model; its name does not reveal the format."""
        path = self._folder / f"{name}-{saved_as.value}.bin"
        if not path.exists():
            save(EXAMPLES[name], saved_as, path)
        return path
