"""Reads the filters of lists from the queries of forms, which also send empty fields."""

import re
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from bessemer.contract.base import Document

D = TypeVar("D", bound=Document)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def given(request: Request, kind: type[D]) -> D:
    """The query's parameters, except empty ones, as a document.

    Raises:
        RequestValidationError: one is not valid.
    """
    fields: dict[str, str | list[str]] = {}
    for name in kind.model_fields.keys() & request.query_params.keys():
        values = [_value(value.strip()) for value in request.query_params.getlist(name) if value.strip()]
        if values:
            several = "tuple" in str(kind.model_fields[name].annotation)
            fields[name] = values if several else values[-1]
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(
            [{**each, "loc": ("query", *each["loc"])} for each in error.errors()]
        ) from error


def next_page(request: Request, cursor: str | int | None, name: str = "cursor") -> str | None:
    """The query of the next page: the same filters, and its cursor; None on the last page."""
    if cursor is None:
        return None
    kept = [(key, value) for key, value in request.query_params.multi_items() if key != name and value]
    return f"?{urlencode([*kept, (name, str(cursor))])}"


def _value(text: str) -> str:
    """A date as the time at which it begins."""
    return f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text
