"""Parameters of an address that nobody reads are refused: a typing error must not widen a list in silence."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from app.problems import ProblemError, invalid_problem
from bessemer.contract.nearest import did_you_mean
from bessemer.contract.problem import FieldError

PREFIX = "/v1/"


async def refuse_unknown_parameters(request: Request) -> None:
    """For every route of the API.

    Raises:
        ProblemError: 422 with each unknown parameter, and the nearest that the route has.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.url.path.startswith(PREFIX):
        return
    known = set(_names(route.dependant))
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        errors = (
            FieldError(field=name[:64], message=f"unknown parameter{did_you_mean(name[:64], known)}")
            for name in unknown
        )
        raise ProblemError(invalid_problem(tuple(errors)))


def _names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from kind.model_fields
        else:
            yield field.alias
    for inner in dependant.dependencies:
        yield from _names(inner)
