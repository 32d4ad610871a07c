"""Pydantic's validation errors as field errors with helpful messages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from json import JSONDecodeError
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from app.http.idempotency import KEY_PATTERN
from bessemer.contract.base import DIGEST_PATTERN, DIGEST_PREFIX_PATTERN, MIN_PREFIX
from bessemer.contract.names import LABEL_KEY, LABEL_VALUE, did_you_mean
from bessemer.contract.problem import FieldError
from bessemer.contract.request import TARGET_FORMS, Submission
from bessemer.contract.target import FEATURE_PATTERN, WORD_PATTERN
from bessemer.contract.tensor import DIMENSION_NAME_PATTERN, TENSOR_NAME_PATTERN

WORD_IN_WORDS = "letters, digits, '.', '_' and '-' that begins with a letter or a digit, of 64 at most"
LABEL_KEY_IN_WORDS = "lower-case letters and digits with '._/-' inside, of 63 characters at most"
LABEL_VALUE_IN_WORDS = "printable ASCII characters, 128 at most"

Path = tuple[str | int, ...]
MAX_ERRORS = 50
TEXT_FORMS = {
    DIGEST_PATTERN: "a SHA-256: 64 lower-case hexadecimal digits",
    DIGEST_PREFIX_PATTERN: f"a SHA-256, or its first {MIN_PREFIX} or more lower-case hexadecimal digits",
    TENSOR_NAME_PATTERN: "a name of ASCII letters, digits, '_' and '.' that begins with a "
    "letter or '_', of 128 characters at most",
    DIMENSION_NAME_PATTERN: "a dimension's name: up to 64 letters, digits and '_', not starting with a digit",
    f"^{LABEL_KEY}$": f"a key of {LABEL_KEY_IN_WORDS}",
    f"^{LABEL_VALUE}$": LABEL_VALUE_IN_WORDS,
    f"^{LABEL_KEY}(?:={LABEL_VALUE})?$": f"`key` or `key=value`: a key of {LABEL_KEY_IN_WORDS}; "
    f"{LABEL_VALUE_IN_WORDS}",
    KEY_PATTERN: "printable ASCII characters",
    WORD_PATTERN: f"a name of {WORD_IN_WORDS}",
    FEATURE_PATTERN: f"'+' or '-' and a name of {WORD_IN_WORDS}",
}
"""Descriptions of the contract's patterns."""

TYPES_IN_WORDS = {
    "dict_type": "expected a JSON object",
    "model_type": "expected a JSON object",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected a string",
    "missing": "required",
    "string_unicode": "expected Unicode text without lone surrogates",
    "timezone_aware": "expected a time with a time zone, such as 2026-11-01T00:00:00Z",
    "datetime_from_date_parsing": "expected an RFC 3339 time, such as 2026-11-01T00:00:00Z; "
    "in a URL, write `+` as %2B",
}
"""Our messages for kinds of errors."""

LIMITS_IN_WORDS = {
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}",
    "less_than": "expected less than {lt}",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
}
"""The same for kinds of errors that name a limit."""

MAX_NAME_LENGTH = 128
_QUOTED = re.compile(r"'([^']+)'")


def field_errors(details: Sequence[Mapping[str, Any]]) -> tuple[FieldError, ...]:
    """The errors of a request, at most ``MAX_ERRORS``.

    If a field has several forms, only the errors of the most likely form are reported.

    Args:
        details: ``RequestValidationError.errors()``.
    """
    return tuple(_field_error(detail) for detail in _probable_forms(details)[:MAX_ERRORS])


def errors_of(error: ValidationError) -> tuple[FieldError, ...]:
    """The errors of a document that a page made from texts; see ``field_errors``."""
    return field_errors([{**each, "loc": ("body", *each["loc"])} for each in error.errors()])


def not_json(error: Exception) -> str:
    """Why a body is not valid JSON."""
    if isinstance(error, JSONDecodeError):
        return f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return "not JSON: it is not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"


def _field_error(detail: Mapping[str, Any]) -> FieldError:
    place: Path = tuple(detail["loc"])[1:] if detail["type"] != "json_invalid" else ()
    return FieldError(
        field=clean(_dotted(place)) or str(detail["loc"][0]), message=clean(_message(detail, place))
    )


def _message(detail: Mapping[str, Any], place: Path) -> str:
    kind = detail["type"]
    if kind in TYPES_IN_WORDS:
        return TYPES_IN_WORDS[kind]
    if kind in LIMITS_IN_WORDS:
        return LIMITS_IN_WORDS[kind].format_map(detail["ctx"])
    if kind == "too_long" and "actual_length" in detail["ctx"]:
        return f"expected {detail['ctx']['max_length']} entries at most"
    if kind == "json_invalid":
        return f"not JSON: {detail.get('ctx', {}).get('error', 'cannot be read')}"
    if kind == "model_attributes_type":
        return "expected a JSON object" + ("" if place else ", with `Content-Type: application/json`")
    if kind == "extra_forbidden":
        return _unknown_field(str(place[-1]), _known_fields(place))
    if kind == "string_pattern_mismatch" and detail["ctx"]["pattern"] in TEXT_FORMS:
        return f"expected {TEXT_FORMS[detail['ctx']['pattern']]}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    if kind in ("enum", "literal_error"):
        return f"{message}{suggestion(str(detail['input']), _QUOTED.findall(message))}"
    return message


def _unknown_field(name: str, known: set[str]) -> str:
    if name in known:
        return "this field belongs to another form and cannot be combined with the fields beside it"
    return f"unknown field{suggestion(name, known)}"


def suggestion(word: str, known: Iterable[str]) -> str:
    """A clause that suggests the nearest known name; empty if none is near or the word is too long."""
    return "" if len(word) > MAX_NAME_LENGTH else did_you_mean(word, sorted(known))


def _known_fields(place: Path) -> set[str]:
    """The known fields at the place of an unknown one."""
    models: set[type[BaseModel]] = {Submission}
    for step in place[:-1]:
        if isinstance(step, str) and step not in {model.__name__ for model in models}:
            fields = [model.model_fields[step] for model in models if step in model.model_fields]
            if not fields:
                continue  # a key of a mapping, whose values the models are
            models = {found for field in fields for found in _models_in(field.annotation)}
    return {name for model in models for name in model.model_fields}


def _models_in(annotation: Any) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for part in get_args(annotation) for found in _models_in(part)}


def _probable_forms(details: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """For each field with several forms, keep the errors of the form with the fewest."""
    counts: dict[Path, dict[str, int]] = {}
    for detail in details:
        for prefix, form in _forms(tuple(detail["loc"])):
            forms = counts.setdefault(prefix, {})
            forms[form] = forms.get(form, 0) + 1
    best = {prefix: min(forms, key=forms.__getitem__) for prefix, forms in counts.items()}
    return [d for d in details if all(best[prefix] == form for prefix, form in _forms(tuple(d["loc"])))]


def _forms(place: Path) -> list[tuple[Path, str]]:
    return [
        (place[:index], step) for index, step in enumerate(place) if isinstance(step, str) and _is_form(step)
    ]


def _is_form(step: str) -> bool:
    """Pydantic names union members by class; the contract's fields are lower-case."""
    return step[:1].isupper() and step in _FORMS


_FORMS = (
    frozenset(
        model.__name__ for field in Submission.model_fields.values() for model in _models_in(field.annotation)
    )
    | TARGET_FORMS
)


def _dotted(place: Path) -> str:
    """``inputs[0].dtype`` of ``("inputs", 0, "dtype")``, without the names of union members."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not _is_form(step):
            text += f".{step}" if text else step
    return text


def clean(text: str) -> str:
    """Text as valid UTF-8 of bounded length."""
    return text.encode("utf-8", "replace").decode()[:1000]
