"""The commands of the README and of two pages, run in order in one folder each."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from examples.local_service import ROOT

WRITTEN_URL = "http://127.0.0.1:8000"
TOOLS = ("curl", "zstd")
MARKS = {"README.md": (), "docs/usage.md": pytest.mark.slow, "docs/extensions.md": pytest.mark.slow}

ONCE = ("make ", "source ", "export ", "bessemer serve")
"""Commands that a reader runs once, before the rest."""

FIRST_ID = "import json, sys; print(json.load(sys.stdin)['items'][0]['id'])"
NEWEST = f'$(bessemer jobs --limit 1 --json | python -c "{FIRST_ID}")'
RUNNING = "$(bessemer compile mlp.pt2 --option tune.trials=500 --detach)"
SLOWER_OR_UNSTEADY = "case $? in 5|7) ;; *) exit 1;; esac"
SHORTER = {"tune.seconds=20": "tune.seconds=3"}
"""Searches end sooner than a page says."""

KEPT = "kept-id"
"""The file with the compilation's id that a paragraph leaves to later ones."""


@dataclass(frozen=True)
class Paragraph:
    """Commands without an empty line between them, each with its continuation lines and its output."""

    title: str
    commands: tuple[str, ...]


@dataclass
class Reader:
    """Pastes the paragraphs of a page in order in one folder."""

    folder: Path
    url: str
    paragraphs: tuple[Paragraph, ...]
    read: int = 0

    def read_through(self, paragraph: Paragraph) -> None:
        """Paste a paragraph, and before it those that no test has pasted: they may prepare it."""
        while self.read <= self.paragraphs.index(paragraph):
            self.read += 1  # the next test does not repeat one that fails
            self._paste(self.paragraphs[self.read - 1].commands)

    def _paste(self, commands: tuple[str, ...]) -> None:
        text = script(commands, self.url)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-euc", text],
            cwd=self.folder,
            env=os.environ | {"BESSEMER_URL": self.url, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{text}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
        shown = [line for command in commands for line in re.findall(r"^run\.py: .*", command, re.MULTILINE)]
        assert [line for line in shown if line not in ran.stdout + ran.stderr] == []


@cache
def paragraphs(name: str) -> tuple[Paragraph, ...]:
    """The commands of a page; a paragraph's title is its section's, with a number if that has several."""
    parts = re.split(r"^##+ (.*)\n", f"## Introduction\n{(ROOT / name).read_text()}", flags=re.MULTILINE)[1:]
    return tuple(
        Paragraph(f"{title} {number}" if number > 1 else title, commands)
        for title, text in zip(parts[::2], parts[1::2], strict=True)
        for number, commands in enumerate(commands_of(text), start=1)
    )


def commands_of(text: str) -> list[tuple[str, ...]]:
    """The commands of a section by paragraph."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    groups = [group for block in blocks for group in block.split("\n\n")]
    split = (re.split(r"^\$ ", group, flags=re.MULTILINE) for group in groups)
    return [tuple(command.strip() for command in each if command.strip()) for each in split]


def files(page: str) -> dict[str, str]:
    """The Python files on a page; each begins with its name."""
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL))


def pasted(command: str) -> str:
    """A command as a reader pastes it, with a compilation's id in place of ID."""
    for written, shorter in SHORTER.items():
        command = command.replace(written, shorter)
    if command.startswith("bessemer gate"):
        return f"{command.partition('#')[0]} || {SLOWER_OR_UNSTEADY}"
    if command.startswith("bessemer cancel"):
        return f"ID={RUNNING}\n{command}"
    if "inspect.ir=true" in command:
        return f"{command}\nID={NEWEST}"
    runner_line = re.search(r"\n(run\.py: .*)", command)
    return f"! {command[: runner_line.start()]}" if runner_line else command


def script(commands: tuple[str, ...], url: str) -> str:
    lines = [pasted(command) for command in commands if not command.startswith(ONCE)]
    text = re.sub(r"\bID\b(?!=)", '"$ID"', "\n".join(lines)).replace(WRITTEN_URL, url)
    text = f"C={url}/v1/compilations/{NEWEST}\n{text}" if "$C/" in text else text
    return f'ID=$(cat {KEPT} || true)\n{text}\necho "$ID" > {KEPT}' if "ID" in text else text


@pytest.fixture(scope="module")
def reader_of(service: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reader]:
    """The reader of each page."""

    @cache
    def reader(name: str) -> Reader:
        folder = tmp_path_factory.mktemp("reader")
        (folder / "examples").symlink_to(ROOT / "examples")
        for file, text in files((ROOT / name).read_text()).items():
            (folder / file).write_text(text)
        return Reader(folder, service, paragraphs(name))

    return reader


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="curl or zstd is not on this machine")
@pytest.mark.parametrize(
    ("name", "paragraph"),
    [
        pytest.param(name, paragraph, id=f"{name}: {paragraph.title}", marks=MARKS[name])
        for name in MARKS
        for paragraph in paragraphs(name)
    ],
)
def test_documented_commands_work_and_print_what_the_page_shows(
    reader_of: Callable[[str], Reader], name: str, paragraph: Paragraph
) -> None:
    reader_of(name).read_through(paragraph)
