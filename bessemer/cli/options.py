"""Reads ``--option tune.trials=64`` into the fields of a request."""

import difflib
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from bessemer.client.inputs import validation_message
from bessemer.contract.dynamic import DimensionRange, parse_dimension
from bessemer.contract.request import CompilationRequest
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST
from bessemer.contract.tensor import InputSpec, parse_input_spec
from bessemer.errors import InvalidArgumentError

__all__ = [
    "ANY_MODEL",
    "DimensionsOption",
    "Draft",
    "MODEL_HELP",
    "NoWaitOption",
    "FieldsOption",
    "InputsOption",
    "NameOption",
    "LabelsOption",
    "ModelArgument",
    "TargetOption",
    "option_paths",
    "read_bytes",
    "read_draft",
    "read_labels",
]

MODEL_HELP = (
    "A model file, an uploaded one's digest or the start of it, or FILE.py:FUNCTION that returns one, "
    "or an nn.Module with its inputs."
)
ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
TargetOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="One of `bessemer targets`; by default the worker's own.")
]
NoWaitOption = Annotated[
    bool,
    typer.Option("--no-wait", help="Fail at once if no live worker takes the target, rather than queue."),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="NAME=1x3x224x224:float32", help="Once for each input; a .pt2 has its own."
    ),
]
FieldsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="A field of the request, such as tune.trials=64."),
]

NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="What to call it; by default the file's name."),
]

LabelsOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="What it is found by in `bessemer jobs`."),
]

DimensionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dimension", metavar="NAME=1..64", help="The range of a size that an --input names, x=NAMEx784."
    ),
]

Value = TypeVar("Value")
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?((?P<unit>[KMGT]I?)?B)?", re.ASCII | re.IGNORECASE)
ARGUMENTS = frozenset({"model", "name", "inputs", "dimensions"})
ANY_MODEL = "0" * 64


@dataclass(frozen=True)
class Draft:
    """What a command line says of a request before its model is at hand, which may have inputs of its own.

    Attributes:
        request: for any model; without ``dimensions`` where it names no inputs.
        dimensions: of these inputs, or of those that the model has.
    """

    request: CompilationRequest
    dimensions: Mapping[str, DimensionRange]

    def until(self, stage: Stage) -> "Draft":
        """The same, to stop after a stage."""
        return replace(self, request=self.request.model_copy(update={"stop_after": stage}))

    def with_inputs(
        self, inputs: tuple[InputSpec, ...], dimensions: Mapping[str, DimensionRange]
    ) -> CompilationRequest:
        """The request, still for any model, once it is known what the model takes.

        Raises:
            InvalidArgumentError: inputs and dimensions do not go together.
        """
        given = self.request.model_dump(exclude_unset=True)
        return _checked({**given, "inputs": inputs, "dimensions": dimensions})


def read_draft(
    target: str | None,
    inputs: Sequence[str] | None,
    options: Sequence[str] | None,
    labels: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
    name: str | None = None,
) -> Draft:
    """Read what a command was given.

    Args:
        target: a preset's name; ``host`` where neither it nor an option names one.
        inputs: ``x=1x784:float32`` each, or ``x=batchx784:float32``.
        options: ``tune.trials=64`` or, where the last part is unique, ``trials=64``; ``kernels.linear=auto``.
        labels: ``team=vision`` each.
        dimensions: ``batch=1..64`` each.
        name: of the compilation.

    Raises:
        InvalidArgumentError: a key is unknown or a value is not valid; the message names what is.
    """
    fields: dict[str, Any] = {}
    for path, value in _read_options(options or ()).items():
        _place(fields, path.split("."), value)
    if target is not None or "mcpu" not in fields.get("target", {}):
        fields["target"] = {"preset": HOST if target is None else target, **fields.get("target", {})}
    if inputs:
        fields["inputs"] = tuple(_read_input(text) for text in inputs)
    ranges = _read_dimensions(dimensions or ())
    if inputs and ranges:
        fields["dimensions"] = ranges
    if name is not None:
        fields["name"] = name
    if labels:
        fields["labels"] = {key: value or "" for key, value in read_labels(labels).items()}
    return Draft(_checked(fields), ranges)


def _checked(fields: Mapping[str, Any]) -> CompilationRequest:
    try:
        return CompilationRequest.model_validate({"model": ANY_MODEL, **fields})
    except ValidationError as error:
        raise InvalidArgumentError(validation_message(error)) from error


def read_labels(labels: Sequence[str]) -> dict[str, str | None]:
    """``team=vision`` each, or ``team`` for any value."""
    split = (label.partition("=") for label in labels)
    return {key: value if equals else None for key, equals, value in split}


def read_bytes(text: str) -> int:
    """Read a size: ``64MiB``, ``64MB``, or bytes.

    Raises:
        typer.BadParameter: the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a size such as 64MiB, 1.5GiB or 2000000")
    unit = (match["unit"] or "").upper()
    power = "KMGT".index(unit[0]) + 1 if unit else 0
    size: float = float(match["number"]) * (1024 if "I" in unit else 1000) ** power
    return round(size)


def option_paths() -> dict[str, FieldInfo]:
    """Every option by its dotted path."""
    return {path: info for path, info in _leaves(CompilationRequest, "") if path not in ARGUMENTS}


def _read_options(options: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--option {option} is not of the form KEY=VALUE")
        path = _resolve(key, option_paths())
        if path in values:
            raise InvalidArgumentError(f"--option {path} is given twice")
        values[path] = _read_value(path, text)
    return values


def _resolve(key: str, known: Mapping[str, FieldInfo]) -> str:
    if key in known or any(_is_mapping(path, known) for path in _folders(key)):
        return key
    matches = [path for path in known if path.rpartition(".")[2] == key]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InvalidArgumentError(f"--option {key} could be any of {', '.join(matches)}")
    words = {path.rpartition(".")[2]: path for path in known} | {path: path for path in known}
    near = difflib.get_close_matches(key, words, n=1, cutoff=0.5)
    hint = f"; did you mean '{words[near[0]]}'?" if near else "."
    raise InvalidArgumentError(f"there is no option '{key}'{hint} Known: {', '.join(known)}")


def _read_value(path: str, text: str) -> Any:
    info = option_paths().get(path)
    if info is None:
        return text
    annotation: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    adapter, is_mapping = TypeAdapter(annotation), get_origin(info.annotation) is dict
    try:
        if _is_tuple(info.annotation):
            return adapter.validate_python([part for part in text.split(",") if part])
        return adapter.validate_python(text) if is_mapping else adapter.validate_strings(text)
    except ValidationError as error:
        raise InvalidArgumentError(f"--option {path}={text}: {validation_message(error)}") from error


def _read_input(text: str) -> InputSpec:
    return _read(f"--input {text}", parse_input_spec, text)


def _read_dimensions(texts: Sequence[str]) -> dict[str, DimensionRange]:
    found: dict[str, DimensionRange] = {}
    for text in texts:
        name, limits = _read(f"--dimension {text}", parse_dimension, text)
        if name in found:
            raise InvalidArgumentError(f"--dimension {name} is given twice")
        found[name] = limits
    return found


def _read(argument: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except ValidationError as error:
        raise InvalidArgumentError(f"{argument}: {validation_message(error)}") from error
    except ValueError as error:
        raise InvalidArgumentError(f"{argument}: {error}") from error


def _place(fields: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    *folders, leaf = parts
    for folder in folders:
        fields = fields.setdefault(folder, {})
    fields[leaf] = value


def _leaves(document: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, info in document.model_fields.items():
        nested = [kind for kind in _alternatives(info.annotation) if _is_document(kind)]
        if not nested:
            yield f"{prefix}{name}", info
        for kind in nested:
            yield from _leaves(kind, f"{prefix}{name}.")


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def _folders(key: str) -> Iterator[str]:
    """What a dotted key lies in: ``a`` and ``a.b`` of ``a.b.c``."""
    return (key[:place] for place, letter in enumerate(key) if letter == ".")


def _is_mapping(path: str, known: Mapping[str, FieldInfo]) -> bool:
    """Whether an option has entries of any name, which the document checks."""
    return path in known and get_origin(known[path].annotation) is dict


def _is_document(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_tuple(annotation: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in _alternatives(annotation))
