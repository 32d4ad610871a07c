"""The list of compilations, and the page of one: live while it runs, then its result."""

import json
import logging
import re
import secrets
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse
from markupsafe import Markup
from pydantic import ValidationError

from app.console import words as console_words
from app.console.rendering import page, render
from app.console.result import make_result
from app.console.timeline import timeline
from app.http.bodies import DocumentRoute
from app.http.problems import invalid_problem
from app.http.validation import errors_of
from app.reports import StoredReport, read_report
from app.routes.compilations import cancel_compilation, list_compilations
from app.routes.lookup import CompilationDep
from app.routes.submissions import submit_compilation
from app.service import ServiceDep, TenantService
from bessemer.contract.base import now
from bessemer.contract.code import CODE_INDEX
from bessemer.contract.group import Group
from bessemer.contract.ir import IR_INDEX
from bessemer.contract.job import LOG, Compilation, CompilationPage, JobState
from bessemer.contract.listing import CompilationQuery
from bessemer.contract.options import MAX_TRIALS
from bessemer.contract.problem import Problem
from bessemer.contract.request import Submission
from bessemer.contract.stage import UNITS
from bessemer.figures import words
from bessemer.store.errors import StoreError, StoreUnavailableError

PREFIX = "/console/compilations"
MAX_LOG_BYTES = 64 << 10
"""How much of a log's end the page shows."""

COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""Escape sequences, which programs write to a terminal for colors."""

MORE_TRIALS = 4
"""The page suggests compiling again with this multiple of the number of trials."""
FIRST_TRIALS = 64

router = APIRouter(prefix=PREFIX, include_in_schema=False, route_class=DocumentRoute)
log = logging.getLogger(__name__)


@router.get("")
def show_compilations(request: Request, service: ServiceDep) -> Response:
    """A page of compilations, newest first. Empty fields of the form do not filter."""
    query, problem = _read_query(request)
    found = list_compilations(service, query) if problem is None else CompilationPage(items=())
    return page(
        request,
        "compilation_rows.html.j2" if "hx-request" in request.headers else "compilations.html.j2",
        200 if problem is None else problem.status,
        found=found,
        query=query,
        problem=problem,
        states=tuple(JobState),
        figures=words,
        address=_address,
    )


@router.get("/{id}")
def show_compilation(
    request: Request, service: ServiceDep, job: CompilationDep, ending: str = ""
) -> Response:
    """One compilation. A browser with scripts follows its events; without scripts, the page reloads itself.

    ``ending`` is what the caller just asked for: ``cancel``, or ``best`` to end the search and keep the best.
    """
    return page(
        request,
        "compilation.html.j2",
        **_progress(service, job),
        log_tail=_log_tail(service, job),
        result=_result(request, service, job),
        token=secrets.token_hex(8),
        more_trials=_more_trials(job),
        max_trials=MAX_TRIALS,
        keeps_compiler=_keeps_compiler(job),
        ending=ending,
    )


def _more_trials(job: Compilation) -> int:
    """The number of trials to suggest; ``FIRST_TRIALS`` if only other limits ended the search."""
    tune = job.request.tune
    return (
        FIRST_TRIALS
        if tune.is_without_trials
        else min(max(tune.trials * MORE_TRIALS, FIRST_TRIALS), MAX_TRIALS)
    )


@router.get("/{id}/progress")
def show_progress(request: Request, service: ServiceDep, job: CompilationDep) -> Response:
    """The part of the page that changes while the compilation runs."""
    return page(request, "compilation_progress.html.j2", **_progress(service, job))


@router.post("/{id}/cancel")
def cancel(
    request: Request,
    response: Response,
    service: ServiceDep,
    job: CompilationDep,
    keep_best: Annotated[bool, Form()] = False,
) -> Response:
    """Cancel it, or end its search, and go back to its page."""
    cancel_compilation(service, response, job, keep_best)
    return _to(request, job, f"?ending={'best' if keep_best else 'cancel'}")


@router.post("/{id}/again")
def compile_again(
    request: Request,
    response: Response,
    service: ServiceDep,
    job: CompilationDep,
    token: Annotated[str, Form(min_length=1, max_length=64, pattern=r"^[0-9a-f]+$")],
    trials: Annotated[int | None, Form(ge=1, le=MAX_TRIALS)] = None,
) -> Response:
    """Submit the same request once more, or with another number of trials, and go to the new page.

    The token is part of the idempotency key: a form that is sent twice makes one compilation.
    """
    fields = job.request.model_dump(mode="json", exclude_unset=True)
    if trials is None:
        fields["cache"] = False
    else:
        fields["tune"] = {**fields.get("tune", {}), "trials": trials}
    submission = Submission.model_validate_json(json.dumps(fields))
    made = submit_compilation(service, response, submission, f"console-{token}-{trials or 0}")
    assert not isinstance(made, Group)  # the request of a compilation names one target
    return _to(request, made)


def _to(request: Request, job: Compilation, query: str = "") -> RedirectResponse:
    return RedirectResponse(f"{request.scope.get('root_path', '')}{PREFIX}/{job.id}{query}", 303)


def _progress(service: TenantService, job: Compilation) -> dict[str, Any]:
    return {
        "job": service.with_position(job),
        "timeline": timeline(job, now()),
        "units": UNITS,
        "figures": words,
        "clip": console_words.clip,
    }


def _result(request: Request, service: TenantService, job: Compilation) -> Markup | None:
    """The result as HTML; None before there is one. A report that cannot be shown is not an error."""
    if not job.state.final:
        return None
    try:
        stored = read_report(service, job)
    except StoreUnavailableError as error:
        log.warning("the report of %s cannot be read: %s", job.id, error)
        stored = StoredReport(missing="The report cannot be read now. The figures below are the service's.")
    try:
        return _rendered(request, job, stored)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a hostile report
        log.warning("the report of %s cannot be shown: %s", job.id, error)
    return _rendered(request, job, StoredReport(missing="The report has numbers that cannot be shown."))


def _rendered(request: Request, job: Compilation, stored: StoredReport) -> Markup:
    return Markup(
        render(
            request,
            "compilation_result.html.j2",
            job=job,
            stored=stored,
            report=stored.report,
            result=make_result(job, stored.report) if job.state is JobState.SUCCEEDED else None,
            figures=words,
            keeps_compiler=_keeps_compiler(job),
            clip=console_words.clip,
        )
    )


def _keeps_compiler(job: Compilation) -> bool:
    """Whether the compilation kept its passes or its functions."""
    return any(artifact.name in (IR_INDEX, CODE_INDEX) for artifact in job.artifacts)


def _log_tail(service: TenantService, job: Compilation) -> str:
    """The end of the log without colors; bytes that aren't UTF-8 are replaced."""
    file = next((artifact for artifact in job.artifacts if artifact.name == LOG), None)
    if file is None:
        return COLORS.sub("", service.data.jobs.log_tail(job.id))
    try:
        start = max(file.size_bytes - MAX_LOG_BYTES, 0)
        data = b"".join(service.data.artifacts.stream(file.digest, start, file.size_bytes))
    except StoreError as error:
        log.warning("the log of %s cannot be read: %s", job.id, error)
        return ""
    return COLORS.sub("", data.decode(errors="replace"))


def _read_query(request: Request) -> tuple[CompilationQuery, Problem | None]:
    """The query, and what is wrong with it. Empty fields of the form are ignored."""
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        text = value.strip()
        if text and name == "label":
            given.setdefault(name, []).append(text)
        elif text:
            given[name] = text
    try:
        return CompilationQuery.model_validate(given), None
    except ValidationError as error:
        return CompilationQuery(), invalid_problem(errors_of(error))


def _address(query: CompilationQuery, **changes: object) -> str:
    """The list's address with other values of some fields; None removes a field."""
    fields = {name: value for name, value in query.parameters().items() if name != "cursor"}
    wanted = {name: value for name, value in {**fields, **changes}.items() if value not in (None, "", ())}
    return f"?{urlencode(wanted, doseq=True)}" if wanted else "?"
