"""Converts the texts of a form to a request, and a request to the texts of a form. Pure functions.

A value that cannot be parsed stays a text in the request, and the API refuses it at its field.
"""

import copy
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice, zip_longest
from typing import Any

from pydantic import ValidationError

from app.console.option_forms import Kind, OptionField, OptionGroup
from app.console.words import clip
from app.http.validation import MAX_ERRORS, clean, errors_of
from bessemer.contract.dynamic import DimensionRange, parse_dimension
from bessemer.contract.error_words import suggestion
from bessemer.contract.problem import FieldError
from bessemer.contract.tensor import InputSpec, parse_input_spec

Texts = Mapping[str, Sequence[str]]
"""The texts of a form by the names of its fields."""

HOST = "host"
TARGET_JSON = "target.json"
OTHER_NAMES = (
    *("from", "model", "file", "file_name", "target", "target.cores", "target.features", "target.json"),
    *("dimensions", "inputs", "input.name", "input.shape", "input.dtype", "input.known", "input.example"),
    *("constants", "constant.name", "constant.value", "extension", "extension_files", "show"),
)
"""The names of the form's fields besides the options of the request."""
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}")
_INDEX = re.compile(r"^\[([0-9]{1,9})\](\.?)")
_OF_ALL_TARGETS = re.compile(r"^target(?:\[[0-9]{1,9}\])?\.(cores|features)\b")
_ONE_TARGET = re.compile(r"^target\[([0-9]{1,9})\]")
_SEPARATORS = re.compile(r"[\s,]+")
_SHAPE_SEPARATORS = re.compile(r"\s*[x*,]\s*|\s+")


@dataclass(frozen=True)
class Draft:
    """A request without its model, as far as the texts could be parsed.

    Attributes:
        document: its fields, without those that have their defaults.
        errors: what could not be parsed.
    """

    document: dict[str, Any]
    errors: tuple[FieldError, ...] = ()


@dataclass(frozen=True)
class _Row:
    """One input of a model's signature.

    Attributes:
        known: the shape and the dtype of the model's file, as the form shows them; empty if it has none.
        example: the same, with the sizes of the example inputs in place of dynamic ones.
    """

    name: str
    shape: str
    dtype: str
    known: str
    example: str

    @property
    def is_changed(self) -> bool:
        return bool(self.shape) and f"{self.shape}:{self.dtype}" != self.known

    @property
    def spec(self) -> str:
        sizes = _SHAPE_SEPARATORS.sub("x", self.shape)
        dtype = f":{self.dtype}" if self.dtype else ""
        return sizes + dtype if self.is_changed else self.example


def first(texts: Texts, name: str) -> str:
    """The last text of a field: a switch that is on sends its text after the hidden field's."""
    given = texts.get(name, ())
    return given[-1].strip() if given else ""


def read_draft(texts: Texts, groups: Iterable[OptionGroup]) -> Draft:
    """Convert a form's texts to a request."""
    options = [option for group in groups for option in group.fields]
    errors = _unknown_fields(texts, (option.path for option in options))
    document: dict[str, Any] = {"target": _target(texts, errors)}
    if "target" in texts and not target_words(texts) and not first(texts, TARGET_JSON):
        errors.append(FieldError(field="target", message="required: choose a target"))
    for name, found in (("inputs", _inputs(texts, errors)), ("dimensions", _dimensions(texts, errors))):
        if found:
            document[name] = found
    constants = _constants(texts, errors)
    if constants:
        document["constants"] = constants
    for option in options:
        if option.path in texts:
            _place(document, option, _value(option, texts[option.path], errors))
    return Draft(document, tuple(errors))


def texts_of(document: Mapping[str, Any], groups: Iterable[OptionGroup]) -> dict[str, list[str]]:
    """Convert a request, as JSON has it, to a form's texts."""
    texts = _target_texts(document.get("target", HOST))
    texts["inputs"] = ["\n".join(str(InputSpec.model_validate(each)) for each in document.get("inputs", ()))]
    ranges = document.get("dimensions", {}).items()
    texts["dimensions"] = [
        ", ".join(f"{name}={DimensionRange.model_validate(each)}" for name, each in ranges)
    ]
    constants = document.get("constants", {}).items()
    texts["constants"] = ["\n".join(f"{name}={json.dumps(value)}" for name, value in constants)]
    for group in groups:
        for option in group.fields:
            found = _found(document, option.path)
            if found is not None:
                texts[option.path] = _texts(option, found)
    return texts


def with_extensions(texts: Texts, names: Mapping[str, str | None]) -> dict[str, list[str]]:
    """The texts of the fields for extensions, with uploaded ones added.

    Args:
        texts: the texts of the form.
        names: the names of the uploaded files by their digests.
    """
    digests = [*_SEPARATORS.split(first(texts, "extensions")), *names]
    typed = first(texts, "extension_names")
    named = [f"{digest}={name}" for digest, name in names.items() if name and digest not in typed]
    return {
        "extensions": [" ".join(dict.fromkeys(filter(None, digests)))],
        "extension_names": ["\n".join(filter(None, [typed, *named]))],
    }


def shown(option: OptionField, texts: Texts) -> list[str]:
    """The texts of an option that a form shows: those that were sent, or its default."""
    given = texts.get(option.path)
    if given is not None:
        return list(given)
    return [] if option.default in (None, [], {}) else _texts(option, option.default)


def place_errors(
    errors: Iterable[FieldError], paths: Iterable[str]
) -> tuple[dict[str, list[str]], tuple[FieldError, ...]]:
    """The messages of errors by the form's fields, and the errors that belong to no field."""
    known = frozenset(paths)
    placed: dict[str, list[str]] = {}
    rest: list[FieldError] = []
    for error in errors:
        field = _OF_ALL_TARGETS.sub(r"target.\1", error.field)
        path = next((each for each in _prefixes(field) if each in known), None)
        if path is None:
            rest.append(error)
            continue
        inner = _INDEX.sub(_entry, field.removeprefix(path)).lstrip(".")
        message = f"{inner}: {error.message}" if inner else error.message
        if message not in placed.setdefault(path, []):
            placed[path].append(message)
    return placed, tuple(rest)


def without_fields(
    document: Mapping[str, Any], paths: Iterable[str], targets: Collection[int] = ()
) -> dict[str, Any]:
    """A request without some fields of the form. If no target is left, it has the default.

    Args:
        document: the request.
        paths: the fields.
        targets: the indices of the targets to leave out, if ``paths`` has ``target``; all if empty.
    """
    left = copy.deepcopy(dict(document))
    given = left.get("target")
    owned = given if isinstance(given, list) else [given]
    for path in paths:
        *owners, last = path.split(".")
        if owners == ["target"]:
            for each in owned:
                if isinstance(each, dict):
                    each.pop(last, None)
        elif path == "target":
            kept = [each for index, each in enumerate(owned) if targets and index not in targets]
            left["target"] = kept if len(kept) > 1 else next(iter(kept), HOST)
        else:
            owner = reduce(lambda outer, name: outer.get(name, {}), owners, left)
            owner.pop(last, None)
    return {name: value for name, value in left.items() if value != {}}


def wrong_targets(errors: Iterable[FieldError]) -> frozenset[int]:
    """The indices of the targets that errors name, except errors in the fields that all targets share."""
    fields = (error.field for error in errors if not _OF_ALL_TARGETS.match(error.field))
    return frozenset(int(match[1]) for match in map(_ONE_TARGET.match, fields) if match)


def _entry(index: re.Match[str]) -> str:
    return f"entry {int(index[1]) + 1}{', ' if index[2] else ''}"


def _prefixes(path: str) -> Iterator[str]:
    """``tune.spaces[0].a``, ``tune.spaces[0]``, ``tune.spaces`` and ``tune``."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def target_words(texts: Texts) -> tuple[str, ...]:
    """The names of targets, each once."""
    names = (name for text in texts.get("target", ()) for name in _SEPARATORS.split(text) if name)
    return tuple(dict.fromkeys(names))


def _unknown_fields(texts: Texts, paths: Iterable[str]) -> list[FieldError]:
    known = frozenset({*paths, *OTHER_NAMES})
    unknown = (name for name in texts if name not in known)
    return [
        FieldError(field=clean(name), message=f"unknown field{suggestion(name, known)}")
        for name in islice(unknown, MAX_ERRORS)
    ]


def _target_texts(target: Any) -> dict[str, list[str]]:
    """The texts of the fields for targets; JSON if the other fields cannot express them."""
    texts: dict[str, list[str]] = {"target": list(_target_names(target))}
    for name in ("cores", "features"):
        value = target.get(name) if isinstance(target, Mapping) else None
        if value:
            texts[f"target.{name}"] = [", ".join(value) if isinstance(value, list) else str(value)]
    is_expressed = _as_documents(_target(texts, [])) == _as_documents(target)
    return texts if is_expressed else {"target": [], TARGET_JSON: [json.dumps(target)]}


def _as_documents(target: Any) -> list[Any]:
    each = target if isinstance(target, list) else [target]
    return [{"preset": one} if isinstance(one, str) else dict(one) for one in each]


def _target(texts: Texts, errors: list[FieldError]) -> Any:
    text = first(texts, TARGET_JSON)
    if text:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            errors.append(FieldError(field=TARGET_JSON, message=f"expected JSON, not {clean(text)[:100]!r}"))
            return HOST
    names = target_words(texts)
    cores, features = first(texts, "target.cores"), first(texts, "target.features")
    rest: dict[str, Any] = {"cores": _number(cores)} if cores else {}
    if features:
        rest["features"] = [each for each in _SEPARATORS.split(features) if each]
    targets = [{"preset": name, **rest} if rest else name for name in names]
    return targets if len(targets) > 1 else (targets or [{"preset": HOST, **rest} if rest else HOST])[0]


def _target_names(target: Any) -> Iterator[str]:
    if isinstance(target, str):
        yield target
    elif isinstance(target, Mapping):
        arch = target.get("arch")
        yield target.get("preset") or ("" if arch else target.get("mcpu")) or f"cuda-{arch}"
    else:
        for each in target:
            yield from _target_names(each)


def _inputs(texts: Texts, errors: list[FieldError]) -> list[dict[str, Any]]:
    """The inputs of the rows and of the lines; none if all are as in the model's file."""
    columns = (texts.get(f"input.{name}", ()) for name in ("name", "shape", "dtype", "known", "example"))
    rows = [_Row(*map(str.strip, row)) for row in zip_longest(*columns, fillvalue="")]
    lines = [line.strip() for text in texts.get("inputs", ()) for line in text.splitlines() if line.strip()]
    is_own = bool(lines) or any(row.is_changed for row in rows)
    named = [f"{row.name}={row.spec}" for row in rows if row.spec] if is_own else []
    found = []
    for index, text in enumerate(named + lines):
        if len(errors) >= MAX_ERRORS:
            break
        try:
            found.append(parse_input_spec(text).model_dump(mode="json"))
        except ValidationError as error:
            errors.append(FieldError(field=f"inputs[{index}]", message=_message(error)))
        except ValueError as error:
            errors.append(FieldError(field=f"inputs[{index}]", message=str(error)))
    return found


def _dimensions(texts: Texts, errors: list[FieldError]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in _SEPARATORS.split(" ".join(texts.get("dimensions", ()))):
        if not text:
            continue
        if len(errors) >= MAX_ERRORS:
            break
        try:
            name, limits = parse_dimension(text)
        except ValidationError as error:
            errors.append(FieldError(field="dimensions", message=_message(error)))
        except ValueError as error:
            errors.append(FieldError(field="dimensions", message=str(error)))
        else:
            found[name] = limits.model_dump(mode="json", exclude_defaults=True)
    return found


def _constants(texts: Texts, errors: list[FieldError]) -> dict[str, Any]:
    rows = zip_longest(texts.get("constant.name", ()), texts.get("constant.value", ()), fillvalue="")
    named = {name: text.strip() for name, text in rows if text.strip()}
    named |= _pairs("constants", "\n".join(texts.get("constants", ())), errors)
    return {name: _json(text) for name, text in named.items()}


def _value(option: OptionField, given: Sequence[str], errors: list[FieldError]) -> Any:
    """The value of one field's texts; None if they are empty."""
    text = given[-1].strip() if given else ""
    match option.kind:
        case Kind.CHOICES:
            return [each for each in given if each]
        case Kind.SWITCH if text in ("true", "false"):
            return text == "true"
        case _ if not text:
            return None
        case Kind.INTEGER | Kind.NUMBER:
            return _number(text)
        case Kind.LIST:
            return [each for each in _SEPARATORS.split(text) if each]
        case Kind.PAIRS:
            return _pairs(option.path, text, errors)
        case Kind.JSON:
            return _json(text)
    return text


def _texts(option: OptionField, value: Any) -> list[str]:
    match option.kind:
        case Kind.CHOICES:
            return ["", *value]
        case Kind.SWITCH:
            return ["true" if value else "false"]
        case Kind.LIST:
            return [", ".join(value)]
        case Kind.PAIRS:
            return ["\n".join(f"{name}={text}" for name, text in value.items())]
        case Kind.JSON:
            return [json.dumps(value)]
        case _ if isinstance(value, float):
            return [f"{value:.12g}"]
    return [str(value)]


def _place(document: dict[str, Any], option: OptionField, value: Any) -> None:
    if value is None or value == option.default:
        return
    *folders, leaf = option.path.split(".")
    for folder in folders:
        document = document.setdefault(folder, {})
    document[leaf] = value


def _found(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _pairs(path: str, text: str, errors: list[FieldError]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, sign, value = map(str.strip, line.partition("="))
        if sign:
            found[name] = value
        elif len(errors) < MAX_ERRORS:
            errors.append(FieldError(field=path, message=f"expected name=value, not {clip(name, 40)!r}"))
    return found


def _number(text: str) -> Any:
    try:
        number = int(text) if _INTEGER.fullmatch(text) else float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _message(error: ValidationError) -> str:
    return errors_of(error)[0].message
