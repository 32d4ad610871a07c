"""Pydantic's validation errors in words for users, the same in the service and in the client."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from bessemer.contract.access import TENANT_PATTERN
from bessemer.contract.base import DIGEST_PATTERN, DIGEST_PREFIX_PATTERN, MIN_PREFIX
from bessemer.contract.error_codes import ErrorCode
from bessemer.contract.names import (
    DOTTED_NAME_PATTERN,
    IDENTIFIER_PATTERN,
    LABEL_KEY,
    LABEL_VALUE,
    PLAIN_NAME_PATTERN,
    did_you_mean,
)
from bessemer.contract.options import SCHEDULE_PATTERN
from bessemer.contract.request import KERNEL_KEY_PATTERN, TARGET_FORMS
from bessemer.contract.target import FEATURE_PATTERN, WORD_PATTERN
from bessemer.contract.target_names import UNSUPPORTED
from bessemer.contract.tensor import DIMENSION_NAME_PATTERN, OTHER_DTYPES, TENSOR_NAME_PATTERN

WORD_IN_WORDS = "at most 64 letters, digits, '.', '_' and '-' that begins with a letter or a digit"
LABEL_KEY_IN_WORDS = "lower-case letters and digits with '._/-' inside, of 63 characters at most"
LABEL_VALUE_IN_WORDS = "printable ASCII characters, 128 at most"

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
    WORD_PATTERN: f"a name of {WORD_IN_WORDS}",
    TENANT_PATTERN: "a tenant's name: 1 to 63 lower-case letters, digits and inner hyphens",
    PLAIN_NAME_PATTERN: "a name of lower-case letters, digits and '_' that begins with a letter",
    IDENTIFIER_PATTERN: "a name of letters, digits and '_' that does not begin with a digit",
    KERNEL_KEY_PATTERN: "an operator, perhaps with shapes, such as `linear` or `linear[1x8,8x4]`",
    DOTTED_NAME_PATTERN: "a name of lower-case letters, digits, '_', '.' and '-' that begins with a letter",
    SCHEDULE_PATTERN: "a file, perhaps with a function, such as `my_schedule.py:tile`",
    FEATURE_PATTERN: f"'+' or '-' and a name of {WORD_IN_WORDS}",
}
"""Descriptions of the contract's patterns."""

TYPES_IN_WORDS = {
    "dict_type": "expected fields with values",
    "model_type": "expected fields with values",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_parsing_size": "expected a whole number of fewer digits",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected a string",
    "missing": "required",
    "extra_forbidden": "unknown field",
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
_EXPECTED = "Input should be "


def validation_message(error: ValidationError, kind: type[BaseModel] | None = None) -> str:
    """The errors of all fields in one line; a ``kind`` of document suggests fields for unknown ones."""
    text = "; ".join(_field_message(entry["loc"], _in_words(entry, kind)) for entry in error.errors())
    is_unsupported = any(entry["type"] == UNSUPPORTED for entry in error.errors())
    return f"{text} [{ErrorCode.TARGET_UNSUPPORTED}]" if is_unsupported else text


def in_words(detail: Mapping[str, Any]) -> str:
    """An error without its place: what was expected, with the nearest valid value if there is one.

    Args:
        detail: an entry of ``ValidationError.errors()``.
    """
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in TYPES_IN_WORDS:
        return TYPES_IN_WORDS[kind]
    if kind in LIMITS_IN_WORDS:
        return LIMITS_IN_WORDS[kind].format_map({name: _whole(limit) for name, limit in context.items()})
    if kind == "too_long" and "actual_length" in context:
        return f"expected {_entries(context['max_length'])} at most"
    if kind == "too_short" and "min_length" in context:
        return f"expected {_entries(context['min_length'])} at least"
    if kind == "json_invalid":
        return f"not JSON: {context.get('error', 'cannot be read')}"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return f"expected {TEXT_FORMS.get(pattern, f'text of the form {pattern}')}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    if message.startswith(_EXPECTED):
        message = f"expected {message.removeprefix(_EXPECTED)}"
    if kind in ("enum", "literal_error"):
        return f"{message}{suggestion(str(detail['input']), _QUOTED.findall(message))}"
    return message


def unknown_field(kind: type[BaseModel], place: Sequence[str | int]) -> str:
    """Describe an unknown field of a document, with the nearest known one if there is one.

    Args:
        place: the field's ``loc`` of ``ValidationError.errors()``.
    """
    name, known = str(place[-1]), _known_fields(kind, place)
    if name in known:
        return "this field belongs to another form and cannot be combined with the fields beside it"
    return f"{TYPES_IN_WORDS['extra_forbidden']}{suggestion(name, known)}"


def _in_words(entry: Mapping[str, Any], kind: type[BaseModel] | None) -> str:
    if kind is not None and entry["type"] == "extra_forbidden":
        return unknown_field(kind, entry["loc"])
    return in_words(entry)


def _field_message(place: tuple[int | str, ...], message: str) -> str:
    shown = ".".join(str(part) for part in place if part not in TARGET_FORMS)
    return f"{shown}: {message}" if place else message


def _known_fields(kind: type[BaseModel], place: Sequence[str | int]) -> set[str]:
    """The known fields at the place of an unknown one."""
    models = {kind}
    for step in place[:-1]:
        if isinstance(step, str) and step not in {model.__name__ for model in models}:
            fields = [model.model_fields[step] for model in models if step in model.model_fields]
            if not fields:
                continue  # a key of a mapping, whose values the models are
            models = {found for field in fields for found in models_in(field.annotation)}
    return {name for model in models for name in model.model_fields}


def models_in(annotation: Any) -> set[type[BaseModel]]:
    """The documents that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {found for part in get_args(annotation) for found in models_in(part)}


def suggestion(word: str, known: Iterable[str]) -> str:
    """A clause that suggests the nearest known name; empty if none is near or the word is too long.

    For dtypes, knows the names of Python and torch, such as `float` and `long`.
    """
    names = sorted(known)
    dtype = OTHER_DTYPES.get(word.casefold())
    if dtype is not None and dtype in names:
        return f"; did you mean '{dtype}'?"
    return "" if len(word) > MAX_NAME_LENGTH else did_you_mean(word, names)


def _whole(limit: Any) -> Any:
    """A limit without a fraction of 0: ``0`` for 0.0."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"
