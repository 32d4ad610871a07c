"""Models as a command names them: a file, a digest, or a Python function, ``models/net.py:export``."""

import importlib.util
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bessemer.cli.output import errors, tell
from bessemer.client.exporting import Modules, save_module, torch_kind
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs, named_specs, ranges_of
from bessemer.contract.base import is_digest_prefix
from bessemer.contract.dynamic import DimensionRange
from bessemer.contract.names import as_name, name_of_file
from bessemer.contract.tensor import InputSpec
from bessemer.errors import BessemerError, ExportError, InvalidArgumentError

__all__ = ["Made", "is_entry", "make_model", "model_at_hand"]

RETURNS = "a path, bytes, an object of torch, or one of these with its inputs, and with its dimensions"
PYTHON = ".py"
MODULE = Modules["torch.nn.modules.module.Module"]
MODULE_WITH_INPUTS = "(module, {'x': (1, 784)})"


@dataclass(frozen=True)
class Made:
    """A model's file or digest, and what the request must name: no inputs where the file has them.

    ``name`` is what the model is called; a digest has no name here.
    """

    source: Path | str
    name: str | None = None
    inputs: tuple[InputSpec, ...] = ()
    dimensions: Mapping[str, DimensionRange] = field(default_factory=dict)


@contextmanager
def model_at_hand(model: str, inputs: Inputs = (), dimensions: Dimensions = NO_DIMENSIONS) -> Iterator[Made]:
    """A model for as long as the block lasts.

    Args:
        model: a file, the digest of an uploaded model, or ``file.py:function``.
        inputs: what the command names.
        dimensions: what the command names.

    Raises:
        InvalidArgumentError, ExportError: as ``make_model``; or a Python file is named without a function.
    """
    if is_entry(model):
        tell(errors, f"making the model of {model}")
        with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
            made = make_model(model, Path(folder), inputs, dimensions)
            yield replace(made, name=_entry_name(model))
        return
    if model.endswith(PYTHON):
        raise InvalidArgumentError(f"{model} is Python: name its function that makes the model, {model}:NAME")
    specs, ranges = named_specs(inputs), ranges_of(dimensions)
    if is_digest_prefix(model) and not Path(model).exists():
        yield Made(model, inputs=specs, dimensions=ranges)
    else:
        yield Made(Path(model), name_of_file(Path(model).name), specs, ranges)


def is_entry(model: str) -> bool:
    """Whether a model is named as a function of a Python file, and not as a file."""
    file, colon, _ = model.rpartition(":")
    return bool(colon) and file.endswith(PYTHON) and not Path(model).exists()


def _entry_name(entry: str) -> str | None:
    """``net.export`` of ``models/net.py:export``."""
    file, _, function = entry.rpartition(":")
    return as_name(f"{Path(file).stem}.{function}")


def make_model(entry: str, folder: Path, inputs: Inputs = (), dimensions: Dimensions = NO_DIMENSIONS) -> Made:
    """Call the function, and have its model in a file.

    Args:
        entry: ``file.py:function``. The function takes nothing, and returns the path of a model's file, its
            bytes or an object of torch, alone or with its inputs and its dimensions, as ``Client.submit``
            takes them. What it or torch prints goes to standard error.
        folder: for a file that has to be written.
        inputs: in place of the function's.
        dimensions: of these inputs; or in place of the function's, each of the same name.

    Raises:
        InvalidArgumentError: there is no such function, or it returns something else.
        ExportError: it raised an error, or torch could not export the module.
    """
    with redirect_stdout(sys.stderr):
        with _told_by_its_line(entry):
            returned = _function(entry)()
        model, own_inputs, own_dimensions = _parts(entry, returned)
        if not inputs:
            inputs, dimensions = own_inputs, {**own_dimensions, **dimensions}
        if torch_kind(model) is not None:
            return _saved(entry, model, folder, inputs, dimensions)
        file = _file(entry, model, folder)
        return Made(file, inputs=named_specs(inputs), dimensions=ranges_of(dimensions))


def _saved(entry: str, module: Any, folder: Path, inputs: Inputs, dimensions: Dimensions) -> Made:
    if torch_kind(module) == MODULE and not inputs:
        ways = f"return it as {MODULE_WITH_INPUTS}, or name them with --input x=1x784"
        raise InvalidArgumentError(f"{entry} returned a module without its inputs: {ways}")
    exported = save_module(module, inputs, folder, dimensions)
    return Made(exported.path, inputs=exported.inputs, dimensions=ranges_of(dimensions))


def _file(entry: str, model: Any, folder: Path) -> Path:
    if isinstance(model, bytes):
        path = folder / "model"
        path.write_bytes(model)
        return path
    if isinstance(model, str | Path):
        return Path(model)
    raise InvalidArgumentError(f"{entry} returned {type(model).__name__}, not {RETURNS}")


def _parts(entry: str, returned: Any) -> tuple[Any, Inputs, Dimensions]:
    """A model, its inputs and its dimensions, of which a function may leave out the latter ones."""
    parts = returned if isinstance(returned, tuple) and len(returned) in (2, 3) else (returned,)
    inputs = parts[1] if len(parts) > 1 else ()
    dimensions = parts[2] if len(parts) > 2 else NO_DIMENSIONS
    if not isinstance(inputs, Mapping | Sequence) or isinstance(inputs, str):
        given = type(inputs).__name__
        raise InvalidArgumentError(f"{entry} returned {given} as inputs, not {{'x': (1, 784)}} or (tensor,)")
    if not isinstance(dimensions, Mapping):
        given = type(dimensions).__name__
        raise InvalidArgumentError(f"{entry} returned {given} as dimensions, not {{'batch': (1, 64)}}")
    return parts[0], inputs, dimensions


@contextmanager
def _told_by_its_line(entry: str) -> Iterator[None]:
    """Run somebody's code, and name the line of what it raises."""
    file = _path(entry)
    try:
        yield
    except BessemerError:
        raise
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}"
        raise ExportError(f"{entry} raised {said}{_place(error, file)}") from error


def _place(error: BaseException, file: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" ({file.name}:{lines[-1]})" if lines else ""


def _function(entry: str) -> Callable[[], Any]:
    path, name = _path(entry), entry.rpartition(":")[2]
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or specification is None or specification.loader is None:
        raise InvalidArgumentError(f"{entry.rpartition(':')[0]} is no Python file")
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(path.parent))  # as `python file.py` does
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidArgumentError(f"{path.name} has no function '{name}'")
    return function  # type: ignore[no-any-return]


def _path(entry: str) -> Path:
    return Path(entry.rpartition(":")[0]).resolve()
