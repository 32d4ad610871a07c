"""The C that is the same for every model."""

from importlib.resources import files
from pathlib import Path

SOURCES = Path(str(files(__package__).joinpath("c")))
