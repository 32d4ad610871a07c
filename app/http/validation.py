"""Pydantic's validation errors as field errors with helpful messages."""

from collections.abc import Mapping, Sequence
from json import JSONDecodeError
from typing import Any

from pydantic import ValidationError

from app.http.idempotency import KEY_PATTERN
from bessemer.contract.error_words import in_words, models_in, unknown_field
from bessemer.contract.problem import FieldError
from bessemer.contract.request import TARGET_FORMS, Submission

JSON_OBJECT = "expected a JSON object"

Path = tuple[str | int, ...]
MAX_ERRORS = 50


def field_errors(details: Sequence[Mapping[str, Any]]) -> tuple[FieldError, ...]:
    """The errors of a request, at most ``MAX_ERRORS``.

    If a field has several forms, only the errors of the most likely form are reported.

    Args:
        details: ``RequestValidationError.errors()``.
    """
    return tuple(_field_error(detail) for detail in _probable_forms(details)[:MAX_ERRORS])


def errors_of(error: ValidationError) -> tuple[FieldError, ...]:
    """The errors of a document that the console made from a form's texts; see ``field_errors``."""
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
    """Describe an error, in terms of JSON and HTTP rather than Python."""
    kind = detail["type"]
    if kind in ("dict_type", "model_type"):
        return JSON_OBJECT
    if kind == "model_attributes_type":
        return JSON_OBJECT + ("" if place else ", with `Content-Type: application/json`")
    if kind == "extra_forbidden":
        return unknown_field(Submission, place)
    if kind == "string_pattern_mismatch" and detail["ctx"]["pattern"] == KEY_PATTERN:
        return "expected printable ASCII characters"
    return in_words(detail)


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
        model.__name__ for field in Submission.model_fields.values() for model in models_in(field.annotation)
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
