"""Renders the console's pages from templates. Every text is escaped, because users and models choose many."""

from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.console import words
from app.console.static_files import address
from app.identity.caller import Caller
from bessemer.contract.access import Scope
from bessemer.figures.templates import open_templates
from bessemer.figures.words import duration, percent

SITE = Path(__file__).parents[1] / "guide"
"""Where ``make guide`` puts the documentation site."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "private, no-cache",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send a form's origin as null
    "Vary": "HX-Request",  # htmx asks for parts of some pages at their own addresses
}


TEMPLATES = open_templates(
    Path(__file__).parent / "templates",
    {
        "moment": words.moment,
        "duration": duration,
        "percent": percent,
        "seconds": words.seconds,
        "size": words.size,
        "short": words.short,
        "tone": words.tone,
        "prose": words.prose,
    },
)


def page(request: Request, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """A page, or a part of one, as a response with a status; see ``render``."""
    return HTMLResponse(render(request, template, **values), status, HEADERS)


def render(request: Request, template: str, **values: object) -> str:
    """A page, or a part of one, as HTML.

    Args:
        request: its root path prefixes every address, so that a proxy may serve the console below a path.
        template: the template's file name.
        values: what the template shows besides ``root``, ``static``, ``has_guide``, ``caller``,
            ``may_compile`` and ``is_admin``.
    """
    root = request.scope.get("root_path", "")
    caller: Caller | None = getattr(request.state, "caller", None)
    return TEMPLATES.get_template(template).render(
        root=root,
        static=lambda name: f"{root}{address(name)}",
        has_guide=(SITE / "index.html").is_file(),
        caller=caller,
        may_compile=caller is not None and caller.scope.includes(Scope.COMPILE),
        is_admin=caller is not None and caller.scope is Scope.ADMIN,
        **values,
    )
