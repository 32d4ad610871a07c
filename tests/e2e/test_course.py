"""Every example in docs/course.md."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import examples.course
from bessemer.client import Client

ROOT = Path(__file__).parents[2]
SHARED = "session"
ANYTHING = "…"
"""Stands for anything in a line, and alone for any lines."""

NAMES = sorted(
    module.name for module in pkgutil.iter_modules(examples.course.__path__) if module.name != SHARED
)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_each_course_example_prints_what_its_chapter_shows(
    service: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(service) as client:
        importlib.import_module(f"examples.course.{name}").show(client, tmp_path)
    printed = iter(capsys.readouterr().out.splitlines())
    for shown in _printed_in_the_chapter_of(name):
        assert any(_matches(shown, line) for line in printed), f"not printed, or in another order: {shown}"


def _printed_in_the_chapter_of(name: str) -> list[str]:
    """The lines in the blocks of text of the chapter that names an example."""
    chapters = (ROOT / "docs" / "course.md").read_text().split("\n## ")[1:]
    (chapter,) = (each for each in chapters if f"`examples.course.{name}`" in each)
    lines = [
        line for block in re.findall(r"```text\n(.*?)```", chapter, re.DOTALL) for line in block.splitlines()
    ]
    assert lines, f"the chapter of {name} does not show what it prints"
    return [line for line in lines if line != ANYTHING]


def _matches(shown: str, line: str) -> bool:
    pattern = ".*".join(map(re.escape, shown.split(ANYTHING)))
    return re.fullmatch(pattern, line.rstrip()) is not None
