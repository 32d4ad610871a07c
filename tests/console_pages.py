"""The paths of the console's pages, as the app has them."""

import re
from collections.abc import Iterator, Mapping, Sequence

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute


def console_pages(app: FastAPI) -> tuple[str, ...]:
    """The path of every page, without the static files."""
    return tuple(path for method, path in console_routes(app) if method == "GET" and ":path" not in path)


def console_routes(app: FastAPI) -> tuple[tuple[str, str], ...]:
    """The method and the path of every route of the console."""
    routes = {(method, route.path) for route in _flat(app.routes) for method in route.methods}
    return tuple(sorted(each for each in routes if each[1].startswith("/console/")))


def filled(path: str, values: Mapping[str, str]) -> str:
    """A path with values in place of its parameters; unknown ones are 0."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: values.get(found[1], "0"), path)


def _flat(routes: Sequence[BaseRoute]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):  # FastAPI keeps routers that it includes as they are
            yield from _flat(route.original_router.routes)
