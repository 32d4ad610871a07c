"""The console: the service as pages for a browser. Every page shows documents that the API also serves."""

from fastapi import FastAPI

from app.console import (
    administration,
    compare,
    compilations,
    compiler,
    fleet,
    guide,
    models,
    records,
    session,
    static_files,
    submit,
    uploads,
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
        compiler,
        compilations,
        compare,
        models,
        records,
        fleet,
        administration,
        submit,
        uploads,
        guide,
    ):
        app.include_router(module.router)
