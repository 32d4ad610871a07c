"""The commands of the README and of two pages, run in order in one folder each."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.local_service import ROOT

WRITTEN_URL = "http://127.0.0.1:8000"
TOOLS = ("curl", "zstd")

ONCE = ("make ", "source ", "export ", "bessemer serve")
"""Commands that a reader runs once, before the rest."""

FIRST_ID = "import json, sys; print(json.load(sys.stdin)['items'][0]['id'])"
NEWEST = f'$(bessemer jobs --limit 1 --json | python -c "{FIRST_ID}")'
RUNNING = "$(bessemer compile mlp.pt2 --option tune.trials=500 --detach)"
SLOWER_OR_UNSTEADY = "case $? in 5|7) ;; *) exit 1;; esac"


def files(page: str) -> dict[str, str]:
    """The Python files on a page; each begins with its name."""
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", page, re.DOTALL))


def blocks(page: str) -> list[list[str]]:
    """The commands of a page by block, each with its continuation lines and its output."""
    found = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    commands = (re.split(r"^\$ ", block, flags=re.MULTILINE) for block in found)
    return [[command.strip() for command in block if command.strip()] for block in commands]


def pasted(command: str) -> str:
    """A command as a reader pastes it, with a compilation's id in place of ID."""
    if command.startswith("bessemer gate"):
        return f"{command.partition('#')[0]} || {SLOWER_OR_UNSTEADY}"
    if command.startswith("bessemer cancel"):
        return f"ID={RUNNING}\n{command}"
    if "inspect.ir=true" in command:
        return f"{command}\nID={NEWEST}"
    runner_line = re.search(r"\n(run\.py: .*)", command)
    return f"! {command[: runner_line.start()]}" if runner_line else command


def script(block: list[str], url: str) -> str:
    commands = [pasted(command) for command in block if not command.startswith(ONCE)]
    text = re.sub(r"\bID\b(?!=)", '"$ID"', "\n".join(commands)).replace(WRITTEN_URL, url)
    return f"C={url}/v1/compilations/{NEWEST}\n{text}" if "$C/" in text else text


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="curl or zstd is not on this machine")
@pytest.mark.parametrize("name", ["README.md", "docs/usage.md", "docs/extensions.md"])
def test_documented_commands_work_and_print_what_the_page_shows(
    service: str, tmp_path: Path, name: str
) -> None:
    page = (ROOT / name).read_text()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for file, text in files(page).items():
        (tmp_path / file).write_text(text)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for block in blocks(page):
        ran = subprocess.run(
            ["bash", "-euc", script(block, service)],
            cwd=tmp_path,
            env=os.environ | {"BESSEMER_URL": service, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ran.returncode == 0, f"{script(block, service)}\n{ran.stdout[-2000:]}\n{ran.stderr[-2000:]}"
        shown = [line for command in block for line in re.findall(r"^run\.py: .*", command, re.MULTILINE)]
        assert [line for line in shown if line not in ran.stdout + ran.stderr] == []
