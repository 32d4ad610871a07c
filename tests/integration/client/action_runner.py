"""The parts of a GitHub runner that the action needs: expressions, step outputs, caches."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).parents[3] / "ci" / "github" / "action.yml"
LONGEST_KEY = 512
INSTALLS = "pip install"


@dataclass(frozen=True)
class Event:
    """The event of a run, as the ``github`` context describes it."""

    event_name: str = "push"
    ref_name: str = "main"
    base_ref: str = ""
    run_id: int = 1
    run_attempt: int = 1

    def context(self) -> dict[str, str]:
        own = {f"github.{name}": str(value) for name, value in vars(self).items()}
        return {**own, "github.event.repository.default_branch": "main"}


@dataclass(frozen=True)
class Caches:
    """A repository's caches: written once, found by key or, newest first, by prefix."""

    kept: dict[str, dict[Path, bytes]] = field(default_factory=dict)

    def save(self, key: str, paths: list[Path]) -> None:
        assert "," not in key and len(key) <= LONGEST_KEY and key not in self.kept, key
        self.kept[key] = {path: path.read_bytes() for path in paths if path.exists()}

    def restore(self, prefixes: list[str]) -> None:
        found = [key for prefix in prefixes for key in reversed(self.kept) if key.startswith(prefix)]
        for path, content in self.kept[found[0]].items() if found else ():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def environment(folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """A step's environment, with the programs of the checkout's ``bin``."""
    return {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **variables}


def sh(folder: Path, script: str, variables: dict[str, str]) -> int:
    """Run a step's script in a checkout, as the runners do."""
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment(folder, variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in ran.stderr
    return ran.returncode


def steps() -> list[dict[str, Any]]:
    """The action's steps."""
    found: list[dict[str, Any]] = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    return found


@dataclass(frozen=True)
class Runner:
    """Runs the action's steps in a checkout, except the installing one."""

    folder: Path
    caches: Caches = field(default_factory=Caches)

    def run(self, given: dict[str, str], event: Event) -> int:
        """Run the steps until one fails, and return the status of the last.

        Args:
            given: the action's inputs; others have their defaults.
            event: the event that starts the run.
        """
        context = {**inputs(given), **event.context()}
        for step in steps():
            if wanted(step, event) and (status := self._run_step(step, context)) != 0:
                return status
        return 0

    def _run_step(self, step: dict[str, Any], context: dict[str, str]) -> int:
        if "uses" in step:
            self._use_caches(step, context)
            return 0
        outputs, summary = self.folder / "outputs", self.folder / "summary.md"
        outputs.write_text("")
        own = {"GITHUB_OUTPUT": str(outputs), "GITHUB_STEP_SUMMARY": str(summary)}
        status = sh(self.folder, step["run"], {**own, **variables(step, context)})
        for name, _, value in (line.partition("=") for line in outputs.read_text().splitlines()):
            context[f"steps.{step['id']}.outputs.{name}"] = value
        return status

    def _use_caches(self, step: dict[str, Any], context: dict[str, str]) -> None:
        given = {name: evaluated(text, context) for name, text in step["with"].items()}
        if step["uses"].startswith("actions/cache/save@"):
            self.caches.save(given["key"], [self.folder / path for path in given["path"].split()])
        else:
            assert step["uses"].startswith("actions/cache/restore@")
            self.caches.restore([given["key"], *given["restore-keys"].split()])


def inputs(given: dict[str, str]) -> dict[str, str]:
    """The action's inputs with defaults, as expressions name them."""
    declared = yaml.safe_load(ACTION.read_text())["inputs"]
    return {f"inputs.{name}": given.get(name, about.get("default", "")) for name, about in declared.items()}


def variables(step: dict[str, Any], context: dict[str, str]) -> dict[str, str]:
    """The environment of a step's script."""
    return {name: evaluated(text, context) for name, text in step.get("env", {}).items()}


def wanted(step: dict[str, Any], event: Event) -> bool:
    """Whether a step runs for an event and is not the installing one; every condition requires success."""
    condition = step.get("if", "success()")
    assert condition.startswith("success()")
    events = re.findall(r"github\.event_name == '(\w+)'", condition)
    return INSTALLS not in step.get("run", "") and (not events or event.event_name in events)


def evaluated(text: str, context: dict[str, str]) -> str:
    """A text with its expressions replaced by their first nonempty alternative."""
    return re.sub(
        r"\$\{\{ (.+?) \}\}",
        lambda found: next((context[name] for name in found[1].split(" || ") if context[name]), ""),
        text,
    )
