"""Rewrites the generated pages from the code and the benchmarks' results; ``--check`` names stale ones."""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import typer
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from app.settings import AppSettings
from benchmarks import pages
from benchmarks.architectures.page import architectures_page, readme_line
from bessemer.cli.application import application
from bessemer.client.transport import DEFAULT_URL, URL_VARIABLE
from bessemer.contract.problem import ERRORS
from bessemer.store.settings import StoreSettings
from bessemer.telemetry import metrics
from bessemer.telemetry.logs import LogSettings
from worker.settings import WorkerSettings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
README = ROOT / "README.md"
OBSERVABILITY = DOCS / "observability.md"
GENERATED = "<!-- made by `make docs`; edit the code, not this page -->"
FIGURES_START = "<!-- made by `make docs` from benchmarks/results -->\n"
SURVEY_START = "<!-- made by `make docs` from the survey of architectures -->\n"
METRICS_START = "<!-- made by `make docs` from bessemer/telemetry/metrics.py -->\n"
MADE_END = "<!-- end of what is made -->\n"


def errors_page() -> str:
    """Every error code with its status, title and advice."""
    rows = [
        f"| `{code}` | {text.status} | {text.title} | {text.advice} | {'yes' if text.retryable else 'no'} |"
        for code, text in ERRORS.items()
    ]
    return "\n".join(
        [
            "# Errors",
            GENERATED,
            "",
            "Every error is an RFC 9457 problem (`application/problem+json`) with a stable `code`, a",
            "`detail` that says what happened and where, an `advice` that says what to do, and",
            "`retryable`. A compilation that failed carries the same document under `problem`.",
            "",
            "| code | status | what happened | what to do | can a retry help |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def settings_page() -> str:
    """Every setting with its default and its meaning."""
    sections = [
        ("Store (app and worker)", StoreSettings, frozenset[str]()),
        ("Logs (app and worker)", LogSettings, frozenset[str]()),
        ("App", AppSettings, frozenset(StoreSettings.model_fields)),
        ("Worker", WorkerSettings, frozenset(StoreSettings.model_fields)),
    ]
    lines = ["# Settings", GENERATED, "", "Every setting is an environment variable.", ""]
    for title, settings, elsewhere in sections:
        lines += [f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
        lines += [*_setting_rows(settings, elsewhere), ""]
    return "\n".join([*lines, *_client_settings()])


def _client_settings() -> list[str]:
    url = f"| `{URL_VARIABLE}` | `{DEFAULT_URL}` | The server, unless `--url` or `Client(url=…)` names one. |"
    options = [row for name, command in _commands().items() for row in _option_rows(name, command)]
    return [
        "## Command line and Python client",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
        url,
        "",
        "These stand for options of the command line; several values are separated by blanks.",
        "",
        "| variable | option | meaning |",
        "|---|---|---|",
        *options,
        "",
    ]


def _commands() -> Mapping[str, TyperCommand]:
    group = typer.main.get_command(application)
    assert isinstance(group, TyperGroup)
    return {name: command for name, command in group.commands.items() if isinstance(command, TyperCommand)}


def _option_rows(command_name: str, command: TyperCommand) -> Iterator[str]:
    for parameter in command.params:
        assert isinstance(parameter, TyperArgument | TyperOption)
        names = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or []
        option = parameter.opts[0] if isinstance(parameter, TyperOption) else parameter.metavar
        for name in names:
            yield f"| `{name}` | `{command_name} {option}` | {parameter.help} |"


def _setting_rows(settings: type[BaseSettings], elsewhere: frozenset[str]) -> list[str]:
    prefix = settings.model_config.get("env_prefix", "")
    return [
        f"| `{(prefix + name).upper()}` | {_default(field.get_default(call_default_factory=False))} "
        f"| {field.description} |"
        for name, field in settings.model_fields.items()
        if name not in elsewhere
    ]


def _default(value: object) -> str:
    return "see the meaning" if value is None or value is PydanticUndefined else f"`{value}`"


def figures_page() -> str:
    """Every figure of the newest results."""
    title, rest = pages.figures_page().split("\n", 1)
    return f"{title}\n{GENERATED}\n{rest}"


def surveyed_page() -> str | None:
    """What the newest survey of architectures found."""
    page = architectures_page(pages.RESULTS)
    if page is None:
        return None
    title, rest = page.split("\n", 1)
    return f"{title}\n{GENERATED}\n{rest}"


def readme_page() -> str:
    """The README with its figures."""
    page = _with_section(README.read_text(), FIGURES_START, pages.readme_section())
    return _with_section(page, SURVEY_START, readme_line(pages.RESULTS))


def observability_page() -> str:
    """The page on watching the service, with its tables of metrics."""
    tables = [_metrics_table("app", metrics.APP), _metrics_table("worker", metrics.WORKER)]
    return _with_section(OBSERVABILITY.read_text(), METRICS_START, "\n".join(tables))


def _metrics_table(program: str, described: tuple[metrics.Metric, ...]) -> str:
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} "
        f"| {metric.help} |\n"
        for metric in described
    ]
    return "".join([f"| metric of the {program} | kind | labels | meaning |\n|---|---|---|---|\n", *rows])


def _with_section(page: str, start: str, section: str) -> str:
    """A page, of which one part is made."""
    head, start, rest = page.partition(start)
    _, end, tail = rest.partition(MADE_END)
    return f"{head}{start}{section}{end}{tail}"


PAGES: dict[Path, Callable[[], str | None]] = {
    DOCS / "errors.md": errors_page,
    DOCS / "settings.md": settings_page,
    DOCS / "figures.md": figures_page,
    DOCS / "architectures.md": surveyed_page,
    DOCS / pages.CHART: pages.chart_page,
    DOCS / pages.LOAD_CHART: pages.load_chart_page,
    README: readme_page,
    OBSERVABILITY: observability_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or with ``--check`` name those that are out of date."""
    made = {path: page() for path, page in PAGES.items()}
    stale = {path: text for path, text in made.items() if text is not None and _read(path) != text}
    if "--check" in arguments:
        sys.stdout.writelines(f"{path.relative_to(ROOT)} is out of date: run `make docs`\n" for path in stale)
        return int(bool(stale))
    for path, text in stale.items():
        path.write_text(text)
    return 0


def _read(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
