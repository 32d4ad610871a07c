"""What a rewrite did, for the report."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from bessemer.contract.problem import SourcePlace
from bessemer.contract.report import RewriteResult
from worker.compiler.rewrites.engine import Application
from worker.compiler.rewrites.registry import rewrite_book

MAX_PLACES = 100


def report_rewrite(application: Application, places: Mapping[str, SourcePlace]) -> RewriteResult:
    """How often a rewrite fired, and where.

    Args:
        application: the rewrite, after its pass.
        places: where in the user's model a variable comes from, by its name; the others go by that name.
    """
    name = application.rewrite.name
    return RewriteResult(
        name=name,
        source=rewrite_book().sources[name],
        count=len(application.fired),
        places=tuple(_place(variable, places) for variable in application.fired[:MAX_PLACES]),
    )


def _place(variable: relax.Var, places: Mapping[str, SourcePlace]) -> SourcePlace:
    return places.get(str(variable.name)) or SourcePlace(operator=str(variable.name))
