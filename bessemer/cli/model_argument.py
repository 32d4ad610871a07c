"""The MODEL argument: a file, a digest, or a Python function such as ``models/net.py:export``."""

import codecs
import importlib.util
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bessemer.cli.arguments import Draft
from bessemer.cli.live_view import upload_view
from bessemer.cli.output import errors, print_lines
from bessemer.client import Client, Group, Job
from bessemer.client.exporting import (
    NO_CONSTANTS,
    Constants,
    Modules,
    is_programs,
    save_module,
    save_programs,
    torch_kind,
)
from bessemer.client.inputs import NO_DIMENSIONS, Dimensions, Inputs, named_specs, ranges_of, validated
from bessemer.client.ir_modules import Beside, ir_module_bytes, is_ir_module, packed
from bessemer.client.sources import read_file
from bessemer.client.submission import extension_names
from bessemer.contract.base import is_digest, is_digest_prefix
from bessemer.contract.dynamic import DimensionRange
from bessemer.contract.model import Model
from bessemer.contract.names import MODEL_SUFFIXES, as_name, name_of_file
from bessemer.contract.request import CompilationRequest, Entry, Submission
from bessemer.contract.tensor import InputSpec
from bessemer.errors import BessemerError, ExportError, InvalidArgumentError, NotFoundError

RETURNS = (
    "a path, bytes, a torch object, an IRModule or a dictionary of exported programs, alone or in a tuple "
    "with its inputs and dimensions"
)
PYTHON = ".py"
HEAD_BYTES = 1 << 20
_KNOWN_TEXT = re.compile(rb"\A\s*\{|\Aversion https://git-lfs|^[ \t]*(import|from)[ \t]+tvm\b", re.MULTILINE)
"""JSON, a pointer of Git LFS, or a script that may define an IRModule."""
MODULE = Modules["torch.nn.modules.module.Module"]
MODULE_WITH_INPUTS = "(module, {'x': (1, 784)})"


@dataclass(frozen=True)
class ResolvedModel:
    """A model's file or digest, and what the request must add to it.

    Attributes:
        source: a file, or the digest of an uploaded model.
        name: the default name; None for a digest.
        inputs: empty if the file contains its inputs.
        dimensions: the ranges of named sizes.
        entries: the names of the programs, if the file contains several.
    """

    source: Path | str
    name: str | None = None
    inputs: tuple[InputSpec, ...] = ()
    dimensions: Mapping[str, DimensionRange] = field(default_factory=dict)
    entries: tuple[str, ...] = ()


@contextmanager
def resolved_model(
    model: str,
    inputs: Inputs = (),
    dimensions: Dimensions = NO_DIMENSIONS,
    constants: Constants = NO_CONSTANTS,
) -> Iterator[ResolvedModel]:
    """Resolve a MODEL argument and its inputs. Temporary files live until the block ends.

    Raises:
        InvalidArgumentError: a Python file lacks its function, the file is a plain text, or see
            ``call_entry_point``.
        ExportError: see ``call_entry_point``.
    """
    if is_entry_point(model):
        print_lines(errors, f"building the model of {model}")
        with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
            resolved = call_entry_point(model, Path(folder), inputs, dimensions, constants)
            yield replace(resolved, name=_entry_name(model))
        return
    if model.endswith(PYTHON) and Path(model).is_file() and not mentions_tvm(Path(model)):
        raise InvalidArgumentError(
            f"{model} is a Python file; name the function that returns the model: {model}:NAME"
        )
    if is_plain_text(Path(model)):
        raise InvalidArgumentError(
            f"{model} has none of the known formats; give a .pt2, TorchScript, FX or IRModule file, or "
            "FILE.py:FUNCTION"
        )
    specs, ranges = named_specs(inputs), ranges_of(dimensions)
    if is_digest_prefix(model) and not Path(model).exists():
        yield ResolvedModel(model, inputs=specs, dimensions=ranges)
    else:
        yield ResolvedModel(Path(model), name_of_file(Path(model).name), specs, ranges)


def mentions_tvm(path: Path) -> bool:
    """Whether a Python file may define an IRModule. The server parses it; here it is only read."""
    return b"tvm" in path.read_bytes()


def is_plain_text(path: Path) -> bool:
    """Whether a file is a text, such as a README.md, that the server would not recognize as a model.

    A file with the suffix of a model is left to the server, which describes what it is instead.
    """
    if path.suffix.lower() in ("", PYTHON, *MODEL_SUFFIXES) or not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return bool(head) and b"\0" not in head and not _KNOWN_TEXT.search(head)


def is_entry_point(model: str) -> bool:
    """Whether the argument is a function in a Python file."""
    file, colon, _ = model.rpartition(":")
    return bool(colon) and file.endswith(PYTHON) and not Path(model).exists()


def _entry_name(entry: str) -> str | None:
    """``net.export`` of ``models/net.py:export``."""
    file, _, function = entry.rpartition(":")
    return as_name(f"{Path(file).stem}.{function}")


def call_entry_point(
    entry: str,
    folder: Path,
    inputs: Inputs = (),
    dimensions: Dimensions = NO_DIMENSIONS,
    constants: Constants = NO_CONSTANTS,
) -> ResolvedModel:
    """Call a function that returns a model, and save the model in a file.

    Args:
        entry: ``file.py:function``. The function takes no arguments. It returns the path of a model file, its
            bytes or a torch object, alone or with inputs and dimensions as in ``Client.submit``. Its output
            goes to standard error.
        folder: where to write the file.
        inputs: replace the function's inputs.
        dimensions: ranges for these inputs; without inputs, they override the function's ranges by name.
        constants: other arguments of an ``nn.Module``.

    Raises:
        InvalidArgumentError: the function does not exist, or returns something else.
        ExportError: the function raised an error, or torch could not export the module.
    """
    with redirect_stdout(sys.stderr):
        with _naming_the_line(entry):
            returned = _function(entry)()
        model, own_inputs, own_dimensions = _parts(entry, returned)
        if not inputs:
            inputs, dimensions = own_inputs, {**own_dimensions, **dimensions}
        if is_programs(model):
            return ResolvedModel(save_programs(model, folder), entries=tuple(model))
        if is_ir_module(model):
            model = ir_module_bytes(model)
        if torch_kind(model) is not None:
            return _save(entry, model, folder, inputs, dimensions, constants)
        file = _file(entry, model, folder)
        return ResolvedModel(file, inputs=named_specs(inputs), dimensions=ranges_of(dimensions))


def _save(
    entry: str, module: Any, folder: Path, inputs: Inputs, dimensions: Dimensions, constants: Constants
) -> ResolvedModel:
    if torch_kind(module) == MODULE and not inputs:
        ways = f"return {MODULE_WITH_INPUTS}, or pass --input x=1x784"
        raise InvalidArgumentError(f"{entry} returned a module without its inputs: {ways}")
    exported = save_module(module, inputs, folder, dimensions, constants)
    return ResolvedModel(exported.path, inputs=exported.inputs, dimensions=ranges_of(dimensions))


def _file(entry: str, model: Any, folder: Path) -> Path:
    if isinstance(model, bytes):
        path = folder / "model"
        path.write_bytes(model)
        return path
    if isinstance(model, str | Path):
        return Path(model)
    raise InvalidArgumentError(f"{entry} returned {type(model).__name__}; expected {RETURNS}")


def _parts(entry: str, returned: Any) -> tuple[Any, Inputs, Dimensions]:
    """Split a return value into a model, its optional inputs and its optional dimensions."""
    parts = returned if isinstance(returned, tuple) and len(returned) in (2, 3) else (returned,)
    inputs = parts[1] if len(parts) > 1 else ()
    dimensions = parts[2] if len(parts) > 2 else NO_DIMENSIONS
    if not isinstance(inputs, Mapping | Sequence) or isinstance(inputs, str):
        given = type(inputs).__name__
        raise InvalidArgumentError(
            f"{entry} returned {given} as inputs; expected {{'x': (1, 784)}} or (tensor,)"
        )
    if not isinstance(dimensions, Mapping):
        given = type(dimensions).__name__
        raise InvalidArgumentError(f"{entry} returned {given} as dimensions; expected {{'batch': (1, 64)}}")
    return parts[0], inputs, dimensions


@contextmanager
def _naming_the_line(entry: str) -> Iterator[None]:
    """Run the user's code; if it raises, report the line."""
    file = _path(entry)
    try:
        yield
    except BessemerError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{type(error).__name__}: {error}"
        raise ExportError(f"{entry} raised {message}{_place(error, file)}") from error


def _place(error: BaseException, file: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f" ({file.name}:{lines[-1]})" if lines else ""


def _function(entry: str) -> Callable[[], Any]:
    path, name = _path(entry), entry.rpartition(":")[2]
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or specification is None or specification.loader is None:
        raise InvalidArgumentError(f"{entry.rpartition(':')[0]} is not a Python file")
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


def submitted(client: Client, model: str, draft: Draft, console: Console) -> Job:
    """Build and upload the model if necessary, and submit a compilation. Raises as ``uploaded_all``."""
    return client.post(uploaded_all(client, model, draft, console))


def submitted_group(client: Client, model: str, draft: Draft, console: Console) -> Group:
    """Submit a compilation for each of the draft's targets. Raises as ``uploaded_all``."""
    request = uploaded_all(client, model, draft, console)
    given = {name: getattr(request, name) for name in request.model_fields_set}
    return client.post_group(validated(Submission, {**given, "target": draft.targets}))


def uploaded_all(client: Client, model: str, draft: Draft, console: Console) -> CompilationRequest:
    """Build and upload the model if necessary, and what the request needs beside it; returns the request.

    Raises:
        InvalidArgumentError: the model or the request is not valid; nothing was uploaded.
        ExportError: the function raised an error, or torch could not export its result.
    """
    inputs = {spec.name: spec for spec in draft.request.inputs}
    with (
        resolved_model(model, inputs, draft.dimensions, draft.request.constants) as found,
        with_beside(found, draft.beside) as resolved,
    ):
        request = draft.with_inputs(resolved.inputs, resolved.dimensions)
        if not request.entries and resolved.entries:
            request = request.model_copy(update={"entries": {name: Entry() for name in resolved.entries}})
        if request.name is None and resolved.name is not None:
            request = request.model_copy(update={"name": resolved.name})
        digest = _uploaded(client, resolved, model, request.name, console)
    entries = dict(request.entries)
    for name, file in draft.files.items():
        own = ResolvedModel(file, name_of_file(file.name))
        of_entry = {"model": _uploaded(client, own, str(file), None, console)}
        entries[name] = entries[name].model_copy(update=of_entry)
    update: dict[str, object] = {"model": digest}
    if entries:
        update["entries"] = entries
    digests = [client.upload_extension(file).digest for file in draft.extensions]
    names = extension_names(zip(digests, draft.extensions, strict=True))
    if draft.schedules:
        schedules = client.upload_schedules(draft.schedules)
        of_schedules = [source.partition(":")[0] for source in schedules.values()]
        names = {**extension_names(zip(of_schedules, draft.schedules.values(), strict=True)), **names}
        digests += of_schedules
        request = _tuned(request, schedules=schedules)
    if digests:
        update |= {"extensions": tuple(dict.fromkeys(digests)), "extension_names": names}
    if draft.records is not None:
        request = _tuned(request, records=client.upload_records(draft.records))
    return request.model_copy(update=update)


@contextmanager
def with_beside(model: ResolvedModel, beside: Beside) -> Iterator[ResolvedModel]:
    """An IRModule with the arrays beside it, in a temporary file that lives until the block ends."""
    if not beside:
        yield model
        return
    if isinstance(model.source, str):
        raise InvalidArgumentError("--weights and --reference need the file of an IRModule, not a digest")
    with tempfile.TemporaryDirectory(prefix="bessemer-") as folder:
        path = Path(folder) / "model.zip"
        path.write_bytes(packed(read_file(model.source), beside))
        yield replace(model, source=path)


def _tuned(request: CompilationRequest, **given: object) -> CompilationRequest:
    return request.model_copy(update={"tune": request.tune.model_copy(update=given)})


def _uploaded(client: Client, resolved: ResolvedModel, model: str, name: str | None, console: Console) -> str:
    if isinstance(resolved.source, str):
        return uploaded_model(client, resolved.source).digest
    with upload_view(console, Path(model).name) as progress:
        return client.upload(resolved.source, progress, name=resolved.name or name).digest


def uploaded_model(client: Client, digest: str) -> Model:
    """Find an uploaded model by its digest or first characters. Raises ``InvalidArgumentError``."""
    try:
        return client.model(digest)
    except NotFoundError as error:
        if is_digest(digest):
            raise
        detail = f"'{digest}' is neither a file nor the start of an uploaded model's digest"
        raise InvalidArgumentError(detail) from error
