"""What the code has, the documentation has."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bessemer.contract.job import EventType
from bessemer.contract.problem import ERRORS, ErrorCode
from bessemer.contract.stage import Stage
from bessemer.telemetry.logs import LogFields

ROOT = Path(__file__).parents[2]


def test_the_generated_pages_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, "-m", "docs", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.stdout == ""
    assert check.returncode == 0, check.stderr


def test_every_error_code_has_its_text() -> None:
    assert set(ERRORS) == set(ErrorCode)


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_is_described(stage: Stage) -> None:
    assert f"`{stage}`" in (ROOT / "docs" / "architecture.md").read_text()


@pytest.mark.parametrize("event", EventType)
def test_every_event_is_described(event: EventType) -> None:
    assert f"`{event}`" in (ROOT / "docs" / "events.md").read_text()


def test_the_table_of_log_fields_has_every_field_and_no_other() -> None:
    page = (ROOT / "docs" / "observability.md").read_text()
    table = page.partition("| field | is |\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {*LogFields.__annotations__, "time", "level", "logger", "message", "exc_info"}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
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
def test_make_alone_lists_the_target(target: str) -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^{target} ", listed, re.MULTILINE)
