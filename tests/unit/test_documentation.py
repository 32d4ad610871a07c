"""The documentation covers the code."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings
from typer.core import TyperGroup
from typer.main import get_command

from bessemer.cli.application import application
from bessemer.client.transport import URL_VARIABLE
from bessemer.contract.job import EventType
from bessemer.contract.problem import ERRORS, ErrorCode
from bessemer.contract.stage import Stage
from bessemer.store.settings import StoreSettings
from bessemer.telemetry.logs import LogFields

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_generated_pages_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, "-m", "docs", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.stdout == ""
    assert check.returncode == 0, check.stderr


def test_every_error_code_has_its_text() -> None:
    assert set(ERRORS) == set(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_no_advice_names_a_field_that_only_json_shows(code: ErrorCode) -> None:
    assert not re.search("`(detail|errors|places)`", ERRORS[code].advice)


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_is_described(stage: Stage) -> None:
    assert f"`{stage}`" in (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("event", EventType)
def test_every_event_is_described(event: EventType) -> None:
    assert f"`{event}`" in (ROOT / "docs" / "events.md").read_text()


def settings_classes() -> list[type[BaseSettings]]:
    """Every settings class in the source, including derived ones."""
    bases = {
        (path, node.name): {base.id for base in node.bases if isinstance(base, ast.Name)}
        for package in ("app", "bessemer", "worker")
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    settings = {BaseSettings.__name__}
    while more := {name for (_, name), above in bases.items() if above & settings} - settings:
        settings |= more
    return [
        getattr(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)), name)
        for path, name in bases
        if name in settings
    ]


def test_every_setting_is_described() -> None:
    classes, page = settings_classes(), (ROOT / "docs" / "settings.md").read_text()
    variables = {
        f"{kind.model_config.get('env_prefix', '')}{field}".upper()
        for kind in classes
        for field in kind.model_fields
    }
    assert StoreSettings in classes
    assert [name for name in sorted(variables) if f"| `{name}` |" not in page] == []


def test_every_variable_of_the_command_line_is_described() -> None:
    group = get_command(application)
    assert isinstance(group, TyperGroup)
    options = [parameter.envvar for command in group.commands.values() for parameter in command.params]
    named = [
        name for envvar in options if envvar for name in ([envvar] if isinstance(envvar, str) else envvar)
    ]
    page = (ROOT / "docs" / "settings.md").read_text()
    assert named
    assert [name for name in (URL_VARIABLE, *named) if f"| `{name}` |" not in page] == []


def test_the_table_of_log_fields_lists_exactly_the_fields() -> None:
    page = (ROOT / "docs" / "observability.md").read_text()
    table = page.partition("| field | is |\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {*LogFields.__annotations__, "time", "level", "logger", "message", "exc_info"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sizes_are_in_binary_units(page: Path) -> None:
    assert re.findall(r"\d ?[kKMGT]B\b", page.read_text()) == []


def test_the_readme_links_to_every_page() -> None:
    links = set(re.findall(r"\]\(docs/(\w+\.md)", (ROOT / "README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - links == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_resolve(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(
    "target",
    [
        "demo",
        "serve",
        "setup",
        "test",
        "flakes",
        "test-containers",
        "lint",
        "bench",
        "bench-models",
        "bench-service",
        "bench-architectures",
        "soak",
        "docs",
    ],
)
def test_make_without_a_target_lists_the_targets(target: str) -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^{target} ", listed, re.MULTILINE)
