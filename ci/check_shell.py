"""Checks every shell script of the repository, and those within the pipelines' files, with shellcheck."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
SHELLCHECK = Path(sys.executable).with_name("shellcheck")
SHEBANG = re.compile(rb"#!.*\b(?:ba|da)?sh\b")
GITLAB_SCRIPTS = ("before_script", "script", "after_script")


def scripts() -> Iterator[str]:
    """Files that begin as shell scripts do."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if path.is_file() and SHEBANG.match(path.read_bytes()[:200]):
            yield name


def steps() -> Iterator[tuple[str, str, str]]:
    """Where a script stands, the shell that runs it, and the script."""
    action = yaml.safe_load((ROOT / "ci" / "github" / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        if "run" in step:
            yield f"action.yml, {step['name']}", step["shell"], step["run"]
    for job in yaml.safe_load((ROOT / "ci" / "gitlab" / "bessemer.yml").read_text()).values():
        for part in GITLAB_SCRIPTS:
            yield f"bessemer.yml, {part}", "sh", "\n".join(job[part])


def main() -> int:
    """The status: 0 where nothing was found."""
    statuses = [subprocess.run([SHELLCHECK, *scripts()], cwd=ROOT).returncode]
    for place, shell, script in steps():
        found = subprocess.run(
            [SHELLCHECK, "--shell", shell, "-"], input=script, capture_output=True, text=True
        )
        if found.returncode:
            sys.stdout.write(f"{place}:\n{found.stdout}{found.stderr}")
        statuses.append(found.returncode)
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
