"""Arguments and options that commands share, and how they become a request."""

import difflib
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from bessemer.cli.output import MAX_LISTED
from bessemer.client.inputs import validated
from bessemer.client.ir_modules import NOTHING, Beside
from bessemer.contract.dynamic import DimensionRange, parse_dimension
from bessemer.contract.error_words import validation_message
from bessemer.contract.names import did_you_mean
from bessemer.contract.request import CompilationRequest, Submission
from bessemer.contract.stage import Stage
from bessemer.contract.target import HOST, Target
from bessemer.contract.tensor import InputSpec, parse_input_spec
from bessemer.errors import InvalidArgumentError

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model file, digest (or its first characters) of an uploaded model, or FILE.py:FUNCTION that "
        "returns a model file or an nn.Module with its inputs.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Target to compile for, see `bessemer targets`; defaults to the worker's processor.",
    ),
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="Target to compile for, see `bessemer targets`; defaults to the worker's processor. Repeat "
        "it for several at once.",
    ),
]
NoWaitOption = Annotated[
    bool,
    typer.Option(
        "--no-wait",
        help="Fail at once if no live worker can run the target, instead of waiting in the queue.",
    ),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=1x3x224x224:float32",
        help="One input's shape and dtype; repeat for each input. A .pt2 needs none.",
    ),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        metavar="FILE",
        help="For an IRModule: a .npz or .safetensors file with the values of parameters by name.",
        dir_okay=False,
    ),
]
ReferenceOption = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="FILE.npz",
        help="For an IRModule: inputs and outputs by name, to verify the library with.",
        dir_okay=False,
    ),
]
FieldsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Field of the request, such as tune.trials=64."),
]

DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Device that verifies and measures the bundle, and times a search's candidates; see `devices`.",
    ),
]

NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="Name of the compilation or model; defaults to the file's name."
    ),
]

LabelsOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Label to filter by in `bessemer jobs`."),
]

DimensionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dimension",
        metavar="NAME=1..64",
        help="Range of a size that an --input or the file names. 1..64@8 benchmarks at 8.",
    ),
]

EntriesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--entry",
        metavar="NAME[=METHOD|FILE][,INPUT...]",
        help="Entry point of the library; repeat for each. A method of the model, such as decode, the "
        "model at other shapes, such as small,x=1x784, or another model, such as decode=decode.pt2.",
    ),
]

ExtensionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--extension",
        metavar="FILE.py",
        help="Python file with rewrites, rules, spaces, kernels or functions for this compilation alone; "
        "repeat for each.",
    ),
]

SchedulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule",
        metavar="FUNCTION=FILE.py[:NAME]",
        help="Schedule FUNCTION, a name or a pattern such as 'fused_linear*', with the function "
        "`schedule(sch)`, or NAME, of a Python file; repeat for each.",
    ),
]

RecordsOption = Annotated[
    Path | None,
    typer.Option(
        "--records",
        metavar="DIR",
        help="Tuning records of an earlier search, to measure first: a bundle, or MetaSchedule's work "
        "directory.",
        exists=True,
    ),
]

RunEntryOption = Annotated[
    str | None,
    typer.Option("--entry", metavar="NAME", help="The entry point to run; by default, the first."),
]

ConstantsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constant",
        metavar="NAME=VALUE",
        help="Value of an argument that is not a tensor, as JSON or plain text, such as sr=16000.",
    ),
]

LimitOption = Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="Maximum number of results.")]

Value = TypeVar("Value")
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?) ?((?P<unit>[KMGT]I?)?B)?", re.ASCII | re.IGNORECASE)
ENTRY_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
ARGUMENTS = frozenset({"model", "name", "inputs", "dimensions", "constants", "entries", "extensions"})
_PLACEHOLDER = {"model": "0" * 64}


@dataclass(frozen=True)
class Draft:
    """A request whose model is not resolved yet. The model may bring its own inputs.

    Attributes:
        request: the request with a placeholder digest; without ``dimensions`` unless it has inputs.
        dimensions: ranges for these inputs, or for the model's own.
        files: the model files of entries that have their own.
        beside: the arrays that are uploaded with an IRModule.
        extensions: the files of extensions.
        schedules: the files of schedules, and the functions in them, by functions of the module.
        records: the folder of an earlier search's records.
        targets: the targets of a group, the first of which is the request's; empty for one compilation.
    """

    request: CompilationRequest
    dimensions: Mapping[str, DimensionRange]
    files: Mapping[str, Path] = field(default_factory=dict)
    beside: Beside = NOTHING
    extensions: tuple[Path, ...] = ()
    schedules: Mapping[str, str] = field(default_factory=dict)
    records: Path | None = None
    targets: tuple[Target, ...] = ()

    def until(self, stage: Stage) -> "Draft":
        """A copy that stops after a stage."""
        return replace(self, request=self.request.model_copy(update={"stop_after": stage}))

    def measured_again(self) -> "Draft":
        """A copy that is compiled and measured even if an earlier compilation could answer it."""
        return replace(self, request=self.request.model_copy(update={"cache": False}))

    def with_inputs(
        self, inputs: tuple[InputSpec, ...], dimensions: Mapping[str, DimensionRange]
    ) -> CompilationRequest:
        """The request with the model's inputs, still without its digest. Raises ``InvalidArgumentError``."""
        given = self.request.model_dump(exclude_unset=True)
        return _checked({**given, "inputs": inputs, "dimensions": dimensions})


def read_draft(
    target: str | Sequence[str] | None,
    inputs: Sequence[str] | None,
    options: Sequence[str] | None,
    labels: Sequence[str] | None = None,
    dimensions: Sequence[str] | None = None,
    name: str | None = None,
    constants: Sequence[str] | None = None,
    entries: Sequence[str] | None = None,
    beside: Beside = NOTHING,
    extensions: Sequence[str] | None = None,
    schedules: Sequence[str] | None = None,
) -> Draft:
    """Parse the options of a command.

    Args:
        target: the name of a target, or several names.
        inputs: such as ``x=1x784:float32`` or ``x=batchx784:float32``.
        options: such as ``tune.trials=64``, ``trials=64`` (if the last part is unique) or
            ``kernels.linear=auto``.
        labels: such as ``team=vision``.
        dimensions: such as ``batch=1..64``.
        constants: such as ``sr=16000``.
        beside: the arrays that are uploaded with an IRModule.
        entries: such as ``decode``, ``decode=forward``, ``decode=decode.pt2`` or ``small,x=1x784``.
        schedules: such as ``fused_linear*=my_schedule.py`` or ``matmul=my_schedules.py:tile``.

    Raises:
        InvalidArgumentError: a key is unknown or a value is not valid.
    """
    fields: dict[str, Any] = {}
    for path, value in _read_options(options or ()).items():
        _place(fields, path.split("."), value)
    names = (target,) if isinstance(target, str) else tuple(target or ())
    rest = fields.get("target", {})
    if names or "mcpu" not in rest:
        fields["target"], *others = ({"preset": each, **rest} for each in names or (HOST,))
        several = (fields["target"], *others) if others else ()
    else:
        several = ()
    if inputs:
        fields["inputs"] = tuple(_read_input(text) for text in inputs)
    ranges = _read_dimensions(dimensions or ())
    if inputs and ranges:
        fields["dimensions"] = ranges
    if constants:
        fields["constants"] = _read_constants(constants)
    files: dict[str, Path] = {}
    if entries:
        fields["entries"], files = _read_entries(entries)
    if name is not None:
        fields["name"] = name
    if labels:
        fields["labels"] = {key: value or "" for key, value in read_labels(labels).items()}
    given = _read_schedules(schedules or ())
    targets = validated(Submission, {**_PLACEHOLDER, **fields, "target": several}).targets if several else ()
    _require_ranges(inputs or (), fields.get("inputs", ()), ranges)
    return Draft(
        _checked(fields), ranges, files, beside, tuple(map(Path, extensions or ())), given, targets=targets
    )


def _require_ranges(
    texts: Sequence[str], specs: Sequence[InputSpec], ranges: Mapping[str, DimensionRange]
) -> None:
    """Check that each size that an --input names has a --dimension. Raises ``InvalidArgumentError``."""
    used = {name for spec in specs for name in spec.named_axes.values()}
    unused = [name for name in ranges if name not in used]
    for text, spec in zip(texts, specs, strict=True):
        for name in spec.named_axes.values():
            if name in ranges:
                continue
            said = f"--input {text} names '{name}', which has no range"
            hint = did_you_mean(unused[0], (name,)) if unused else ""
            if hint:
                raise InvalidArgumentError(
                    f"{said}; no --input names '{unused[0]}'{hint}\n→ Write the same name in both."
                )
            idle = f"; no --input names '{unused[0]}'" if unused else ""
            raise InvalidArgumentError(
                f"{said}{idle}\n→ Add `--dimension {name}=1..64`, with the sizes that you need."
            )


def _read_schedules(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        function, equals, source = text.rpartition("=")
        if not (equals and function and source):
            raise InvalidArgumentError(f"--schedule {text} is not of the form FUNCTION=FILE.py")
        if function in found:
            raise InvalidArgumentError(f"--schedule {function} is given twice")
        found[function] = source
    return found


def _checked(fields: Mapping[str, Any]) -> CompilationRequest:
    return validated(CompilationRequest, {**_PLACEHOLDER, **fields})


def read_labels(labels: Sequence[str]) -> dict[str, str | None]:
    """Parse labels such as ``team=vision``, or ``team`` for any value.

    Raises:
        InvalidArgumentError: a key is given twice.
    """
    found: dict[str, str | None] = {}
    for label in labels:
        key, equals, value = label.partition("=")
        if key in found:
            raise InvalidArgumentError(f"--label {key} is given twice")
        found[key] = value if equals else None
    return found


def read_bytes(text: str) -> int:
    """Parse a size: ``64MiB``, ``64MB``, or bytes. Raises ``typer.BadParameter``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a size such as 64MiB, 1.5GiB or 2000000")
    unit = (match["unit"] or "").upper()
    power = "KMGT".index(unit[0]) + 1 if unit else 0
    size: float = float(match["number"]) * (1024 if "I" in unit else 1000) ** power
    return round(size)


def read_time(text: str) -> datetime:
    """Parse a time; without a time zone, it is local. Raises ``typer.BadParameter``."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as error:
        expected = "expected a time, such as 2026-11-01 or 2026-11-01T12:00:00Z"
        raise typer.BadParameter(expected) from error


AfterOption = Annotated[
    datetime | None,
    typer.Option(
        parser=read_time,
        metavar="TIME",
        help="Only entries created after this local time: 2026-11-30, 2026-11-30T18:00:00.",
    ),
]
BeforeOption = Annotated[
    datetime | None,
    typer.Option(parser=read_time, metavar="TIME", help="Only entries created before this local time."),
]


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
    hint = f"; did you mean '{words[near[0]]}'?" if near else f". Known: {', '.join(known)}"
    raise InvalidArgumentError(f"unknown option '{key}'{hint}")


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


def _read_constants(texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in found:
            reason = "is given twice" if equals else "is not of the form NAME=VALUE"
            raise InvalidArgumentError(f"--constant {name if equals else text} {reason}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _read_entries(texts: Sequence[str]) -> tuple[dict[str, Any], dict[str, Path]]:
    """The entries, and the files of the entries that have their own model."""
    found: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for text in texts:
        named, *inputs = text.split(",")
        name, _, method = named.partition("=")
        if "." in method or "/" in method:
            files[name], method = Path(method), ""
        if name in found:
            raise InvalidArgumentError(f"--entry {name} is given twice")
        if not ENTRY_NAME.fullmatch(name):
            meant = files.get(name, method or name)
            raise InvalidArgumentError(_entry_name_refusal(name, str(meant)))
        specs = tuple(_read(f"--entry {text}", parse_input_spec, each) for each in inputs)
        found[name] = {**({"method": method} if method else {}), **({"inputs": specs} if specs else {})}
    return found, files


def _entry_name_refusal(name: str, meant: str) -> str:
    """Why a name is not allowed, and how to name the ``meant`` method or file."""
    said = f"--entry '{name}': names have lower-case letters, digits and underscores, and begin with a letter"
    if ENTRY_NAME.fullmatch(name.lower()):
        return f"{said}; pass --entry {name.lower()}={meant} to run {meant}"
    return f"{said}; --entry NAME=METHOD runs a method of another name"


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
    """The parents of a dotted key: ``a`` and ``a.b`` of ``a.b.c``."""
    return (key[:place] for place, letter in enumerate(key) if letter == ".")


def _is_mapping(path: str, known: Mapping[str, FieldInfo]) -> bool:
    """Whether an option accepts entries of any name, which the document validates."""
    return path in known and get_origin(known[path].annotation) is dict


def _is_document(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_tuple(annotation: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in _alternatives(annotation))


class RequestCommand(TyperCommand):
    """Suggests ``--option trials=…`` for an unknown option such as ``--trials``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # Typer does not export the class of this error
            if hasattr(error, "possibilities"):
                error.possibilities = _fields_named(getattr(error, "option_name", "")) or error.possibilities
            raise


def _fields_named(option: str) -> tuple[str, ...]:
    """Suggestions for an unknown option that has the name of a field, such as ``--trials``."""
    name = option.lstrip("-").replace("-", "_")
    paths = (path for path in option_paths() if name in (path, path.rpartition(".")[2]))
    return tuple(f"--option {path}=…" for path in paths)
