"""Refuses unknown query parameters, so that a typo does not silently widen a list.

Duplicates of a single-valued parameter are refused too: the second would silently win.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.http.problems import RefusalError, invalid_problem
from app.http.validation import MAX_ERRORS
from bessemer.contract.names import did_you_mean
from bessemer.contract.problem import FieldError

PREFIX = "/v1/"


async def refuse_unknown_parameters(request: Request) -> None:
    """Check the query parameters of a request to the API; a dependency of every route.

    Raises:
        RefusalError: 422, with up to ``MAX_ERRORS`` unknown or duplicate parameters.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.url.path.startswith(PREFIX):
        return
    known = dict(_kinds(route.dependant))
    given = Counter(name for name, _ in request.query_params.multi_items())
    complaints = (
        FieldError(field=name[:64], message=complaint)
        for name, count in sorted(given.items())
        if (complaint := _complaint(name, count, known))
    )
    errors = tuple(islice(complaints, MAX_ERRORS))
    if errors:
        raise RefusalError(invalid_problem(errors))


def _complaint(name: str, count: int, known: Mapping[str, object]) -> str | None:
    if name not in known:
        return f"unknown parameter{did_you_mean(name[:64], set(known))}"
    if count > 1 and get_origin(known[name]) is not tuple:
        return f"given {count} times; it takes one value"
    return None


def _kinds(dependant: Dependant) -> Iterator[tuple[str, object]]:
    """The parameters that a route reads, with their types."""
    for field in dependant.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from ((name, inner.annotation) for name, inner in kind.model_fields.items())
        else:
            yield field.alias, kind
    for inner in dependant.dependencies:
        yield from _kinds(inner)
