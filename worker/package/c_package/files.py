"""The files that every library with a C interface is shipped with: a package for CMake, and examples."""

from importlib.resources import files
from pathlib import Path

_FOLDER = Path(str(files(__package__)))
CMAKE_PACKAGE = _FOLDER / "bessemer_model-config.cmake"
EXAMPLES = tuple(sorted(path for path in (_FOLDER / "examples").iterdir() if path.is_file()))
