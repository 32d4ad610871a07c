"""Renders the report as one self-contained HTML page: no scripts, and no fonts or pictures from outside."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from bessemer.contract.dynamic import shown_shape
from bessemer.contract.report import Report
from bessemer.figures import charts, words
from bessemer.figures.templates import open_templates
from worker.report.pictures import Picture
from worker.report.view import make_view

_PAGE = "report.html.j2"
PARTS = ("verdict", "measured")
"""The parts of the page that a device's findings change, each between comments with its name."""

MAX_GRAPH_LETTERS = 1 << 18
"""A picture of some 300 nodes."""


def _environment() -> Environment:
    filters: dict[str, Callable[..., object]] = {
        "duration": words.duration,
        "size": words.size,
        "count": words.count,
        "percent": words.percent,
        "digits": words.three_digits,
        "element": words.element,
        "shape": shown_shape,
        "baseline": words.baseline_name,
        "label": words.baseline_label,
        "ratio": words.ratio_words,
        "decision": words.decision,
        "task_outcome": words.task_outcome,
        "searched_spaces": words.searched_spaces,
        "schedule_outcome": words.schedule_outcome,
        "verified_how": words.verified_how,
        "estimated": words.estimated,
        "not_measured": words.not_measured,
        "device_error": words.device_error,
        "measured_where": words.measured_where,
        "short_search": words.short_search,
        "records_used": words.records_used,
        "rankers_used": words.rankers_used,
    }
    environment = open_templates(Path(__file__).parent / "templates", filters)
    environment.globals |= {
        "CURVE_WIDTH": charts.CURVE_WIDTH,
        "CURVE_HEIGHT": charts.CURVE_HEIGHT,
        "MODEL_CURVE_HEIGHT": charts.MODEL_CURVE_HEIGHT,
    }
    # compiling the templates takes longer than rendering, so it happens before jobs are forked
    for name in environment.list_templates():
        environment.get_template(name)
    return environment


_TEMPLATES = _environment()


def render_part(name: str, report: Report) -> str:
    """Render one of ``PARTS``."""
    return _TEMPLATES.get_template(f"{name}.html.j2").render(view=make_view(report), report=report)


def render(report: Report, graph: str = "", pictures: Sequence[Picture] = ()) -> str:
    """Render the page. Every text of the report is escaped: the model chooses its own names.

    Args:
        report: the report.
        graph: the picture of the model's graph as SVG, which is part of the page unless it is large.
        pictures: the inputs that the request shows as pictures.
    """
    shown = graph if len(graph) <= MAX_GRAPH_LETTERS else ""
    return _TEMPLATES.get_template(_PAGE).render(
        view=make_view(report), report=report, graph=Markup(shown), has_graph=bool(graph), pictures=pictures
    )
