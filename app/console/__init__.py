"""The console: the service as pages for a browser. Every page shows documents that the API also serves."""

from fastapi import FastAPI

from app.console import (
    administration,
    compare,
    compilations,
    fleet,
    guide,
    models,
    records,
    session,
    static_files,
)
from app.console.problem_pages import ProblemPages
from app.console.session import HOME

__all__ = ["HOME", "install"]


def install(app: FastAPI) -> None:
    """Serve the console."""
    app.add_middleware(ProblemPages)
    for module in (
        static_files,
        session,
        compilations,
        compare,
        models,
        records,
        fleet,
        administration,
        guide,
    ):
        app.include_router(module.router)
