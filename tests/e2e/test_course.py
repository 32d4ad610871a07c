"""Every example in docs/course.md."""

import importlib
import pkgutil
from pathlib import Path

import pytest

import examples.course
from bessemer.client import Client

ROOT = Path(__file__).parents[2]
SHARED = "session"
NAMES = sorted(
    module.name for module in pkgutil.iter_modules(examples.course.__path__) if module.name != SHARED
)


@pytest.mark.parametrize("name", NAMES)
def test_each_course_example_shows_what_it_claims(service: str, tmp_path: Path, name: str) -> None:
    with Client(service) as client:
        importlib.import_module(f"examples.course.{name}").show(client, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_the_course_explains_every_example(name: str) -> None:
    assert f"examples.course.{name}" in (ROOT / "docs" / "course.md").read_text()
