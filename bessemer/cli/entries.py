"""Models that a Python function makes: ``models/net.py:export``."""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bessemer.client.exporting import save_module, torch_kind
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs, ranges_of
from bessemer.contract.dynamic import DimensionRange
from bessemer.contract.tensor import InputSpec
from bessemer.errors import InvalidArgumentError

__all__ = ["Made", "is_entry", "make_model"]

RETURNS = "a path, bytes, an object of torch, or a module with its inputs, and with its dimensions"


@dataclass(frozen=True)
class Made:
    """A model's file, and what the request must name: no inputs where the file has them."""

    path: Path
    inputs: tuple[InputSpec, ...] = ()
    dimensions: Mapping[str, DimensionRange] = field(default_factory=dict)


def is_entry(model: str) -> bool:
    """Whether a model is named as a function of a Python file, and not as a file."""
    file, colon, name = model.rpartition(":")
    return bool(colon) and file.endswith(".py") and name.isidentifier() and not Path(model).exists()


def make_model(entry: str, folder: Path, inputs: Inputs = (), dimensions: Dimensions = NO_DIMENSIONS) -> Made:
    """Call the function, and have its model in a file.

    Args:
        entry: ``file.py:function``. The function takes nothing, and returns the path of a model's file, its
            bytes, an object of torch, or a module with its inputs, and its dimensions, as ``Client.submit``
            takes them.
        folder: for a file that has to be written.
        inputs: in place of the function's.
        dimensions: of these inputs; or in place of the function's, each of the same name.

    Raises:
        InvalidArgumentError: there is no such function, or it returns something else.
        ExportError: torch could not export the module.
    """
    made = _function(entry)()
    model, own_inputs, own_dimensions = _parts(made)
    if torch_kind(model) is not None:
        if not inputs:
            inputs, dimensions = own_inputs, {**own_dimensions, **dimensions}
        exported = save_module(model, inputs, folder, dimensions)
        return Made(exported.path, exported.inputs, ranges_of(dimensions))
    if isinstance(model, bytes):
        path = folder / "model"
        path.write_bytes(model)
        return Made(path)
    if isinstance(model, str | Path):
        return Made(Path(model))
    raise InvalidArgumentError(f"{entry} returned {type(model).__name__}, not {RETURNS}")


def _parts(made: Any) -> tuple[Any, Inputs, Dimensions]:
    """A model, its inputs and its dimensions, of which a function may leave out the latter ones."""
    parts = made if isinstance(made, tuple) and len(made) in (2, 3) else (made,)
    inputs = parts[1] if len(parts) > 1 else ()
    return parts[0], inputs, parts[2] if len(parts) > 2 else NO_DIMENSIONS


def _function(entry: str) -> Callable[[], Any]:
    file, _, name = entry.rpartition(":")
    path = Path(file).resolve()
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or specification is None or specification.loader is None:
        raise InvalidArgumentError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(path.parent))  # as `python file.py` does
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidArgumentError(f"{file} has no function '{name}'")
    return function  # type: ignore[no-any-return]
