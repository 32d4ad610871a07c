"""Runs shellcheck on every shell script, including those in the CI templates."""

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
    """Tracked files with a shell shebang."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if path.is_file() and SHEBANG.match(path.read_bytes()[:200]):
            yield name


def steps() -> Iterator[tuple[str, str, str]]:
    """The location, shell and text of each embedded script."""
    action = yaml.safe_load((ROOT / "ci" / "github" / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        if "run" in step:
            yield f"action.yml, {step['name']}", step["shell"], step["run"]
    for job in yaml.safe_load((ROOT / "ci" / "gitlab" / "bessemer.yml").read_text()).values():
        for part in GITLAB_SCRIPTS:
            yield f"bessemer.yml, {part}", "sh", "\n".join(job[part])


def main() -> int:
    """Return 0 if there are no findings."""
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
