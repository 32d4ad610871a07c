"""The steps of the GitHub action and of the GitLab template, run against an app whose worker is played."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from client_samples import FIGURES, MODEL, TARGET, Stagehand

from bessemer.client import Client
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.report import Report
from tests.unit.gate_samples import a_report

ROOT = Path(__file__).parents[3]
ACTION = ROOT / "ci" / "github" / "action.yml"
TEMPLATE = ROOT / "ci" / "gitlab" / "bessemer.yml"
INTERRUPTIBLE = ("env", "--default-signal=INT")
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
WRONG = make_problem(ErrorCode.VERIFY_MISMATCH, "logits[0, 3] is 1.5, not 1.2", stage="verify")


@dataclass(frozen=True)
class Pipeline:
    """A checkout of somebody's repository, with the programs that a runner has after the installing step."""

    folder: Path
    server: str
    client: Client
    stagehand: Stagehand

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """What a step finds, with the programs of the installing step."""
        return {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", **variables}

    def sh(self, script: str, variables: dict[str, str]) -> int:
        """Run a step as the runners do."""
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert "Traceback" not in ran.stderr
        return ran.returncode

    def play(self, ending: Report | None) -> threading.Thread:
        """Do the next job: with a report, or with a library that is wrong."""
        thread = threading.Thread(target=self._do_next, args=(ending,))
        thread.start()
        return thread

    def _do_next(self, ending: Report | None) -> None:
        while (job := next(self.client.jobs(JobState.QUEUED), None)) is None:
            time.sleep(0.05)
        jobs, attempt = self.stagehand.store.jobs, self.stagehand.start(job.id)
        if ending is None:
            jobs.fail(job.id, attempt, WRONG)
            return
        path = self.stagehand.folder / "report.json"
        path.write_text(ending.model_dump_json())
        blob = self.stagehand.store.artifacts.put_file(path)
        kept = Artifact(
            name="report.json", digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/json"
        )
        jobs.succeed(job.id, attempt, TARGET, True, FIGURES, (kept,))


@pytest.fixture
def pipeline(tmp_path: Path, server: str, client: Client, stagehand: Stagehand) -> Pipeline:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "bessemer"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m bessemer.cli "$@"\n')
    program.chmod(0o755)
    (tmp_path / "net.pt2").write_bytes(MODEL)
    return Pipeline(tmp_path, server, client, stagehand)


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    return found


def evaluated(text: str, inputs: dict[str, str]) -> str:
    """An expression of the action's inputs, as a runner replaces it."""
    return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: inputs[found[1]], text)


def step_variables(pipeline: Pipeline, step: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    """What a runner gives a step: the action's inputs, by their defaults where none is given."""
    declared = yaml.safe_load(ACTION.read_text())["inputs"]
    inputs = {name: given.get(name, about.get("default", "")) for name, about in declared.items()}
    own = {name: evaluated(text, inputs) for name, text in step.get("env", {}).items()}
    return {"GITHUB_STEP_SUMMARY": str(pipeline.folder / "summary.md"), **own}


def run_action(pipeline: Pipeline, given: dict[str, str], ending: Report | None) -> int:
    """Run the action's own steps on a push, but the installing one; the caches are the folder itself."""
    player = pipeline.play(ending)
    statuses = [
        pipeline.sh(step["run"], step_variables(pipeline, step, given))
        for step in steps()
        if "run" in step and "pip install" not in step["run"]
    ]
    player.join()
    return max(statuses)


def test_the_action_compares_with_the_push_before_and_fails_where_the_model_gets_slower(
    pipeline: Pipeline,
) -> None:
    given = {
        "url": pipeline.server,
        "model": "net.pt2",
        "options": "tune.trials=16\nbenchmark.seconds=1\n",
        "max-latency-ratio": "1.0",
        "max-regress-percent": "10",
        "name": "net",
    }
    assert run_action(pipeline, given, a_report(0.5)) == 0
    first = next(pipeline.client.jobs()).document.request
    assert (first.tune.trials, first.benchmark.seconds) == (16, 1)
    assert run_action(pipeline, given, a_report(0.6)) == 5
    assert run_action(pipeline, given, a_report(0.6)) == 0
    summary = (pipeline.folder / "summary.md").read_text()
    verdicts = re.findall(r"^## . net.pt2 for host: (\w+)$", summary, re.MULTILINE)
    assert verdicts == ["passed", "slower", "passed"]
    assert "there is no earlier report" in summary


@pytest.mark.parametrize(
    ("ending", "bounds", "status"),
    [
        (None, {}, 4),
        (a_report(library_bytes=2000), {"max-library-bytes": "1000"}, 6),
    ],
    ids=["wrong", "larger"],
)
def test_the_status_says_what_got_worse(
    pipeline: Pipeline, ending: Report | None, bounds: dict[str, str], status: int
) -> None:
    given = {"url": pipeline.server, "model": "net.pt2", **bounds}
    assert run_action(pipeline, given, ending) == status


def test_a_cancelled_run_of_the_action_cancels_its_compilation(pipeline: Pipeline) -> None:
    """The runner signals the shell of the step, and nothing that the shell has started."""
    (step,) = (step for step in steps() if "bessemer gate" in step.get("run", ""))
    script = pipeline.folder / "step.sh"
    script.write_text(step["run"])
    given = {"url": pipeline.server, "model": "net.pt2"}
    shell = subprocess.Popen(
        [*INTERRUPTIBLE, *BASH, script],
        cwd=pipeline.folder,
        env=pipeline.environment(step_variables(pipeline, step, given)),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    job_id = next(line.split()[1] for line in shell.stdout if line.startswith("compilation "))
    shell.send_signal(signal.SIGINT)
    try:
        assert shell.wait(timeout=30) == 130
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
    assert pipeline.client.job(job_id).state is JobState.CANCELLED


def test_the_action_installs_the_client_of_its_own_checkout() -> None:
    (script,) = (step["run"] for step in steps() if "pip install" in step.get("run", ""))
    folder = re.search(r'"\$GITHUB_ACTION_PATH/([./]+)"', script)
    assert folder is not None
    assert (ACTION.parent / folder[1] / "pyproject.toml").resolve() == ROOT / "pyproject.toml"


def test_the_gitlab_template_leaves_summary_junit_and_report(pipeline: Pipeline) -> None:
    job = yaml.safe_load(TEMPLATE.read_text())[".bessemer-gate"]
    environment = {
        **job["variables"],
        "BESSEMER_URL": pipeline.server,
        "BESSEMER_GATE_MODEL": "net.pt2",
        "BESSEMER_GATE_MAX_REGRESS_PERCENT": "10",
        "BESSEMER_CACHE_POLICY": "pull-push",
    }
    statuses = []
    for ratio in (0.5, 0.6):
        player = pipeline.play(a_report(ratio))
        statuses.append(pipeline.sh("\n".join(job["script"]), environment))
        player.join()
        assert pipeline.sh("\n".join(job["after_script"]), environment) == 0
    assert statuses == [0, 5]
    left = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"], *job["cache"]["paths"]]
    assert all((pipeline.folder / path).is_file() for path in left)
    assert (pipeline.folder / ".bessemer" / "summary.md").read_text().count("## ") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--option stop_after=translate", "leave stop_after out"),
        ("--option benchmark.baselines= --max-latency-ratio 1", "judged by torch-eager"),
    ],
)
def test_a_gate_that_could_judge_nothing_is_refused_before_anything_is_uploaded(
    pipeline: Pipeline, arguments: str, words: str
) -> None:
    command = ("gate", "net.pt2", "--url", "http://127.0.0.1:1", *arguments.split())
    ran = subprocess.run(
        [sys.executable, "-m", "bessemer.cli", *command],
        cwd=pipeline.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert words in ran.stderr


@pytest.mark.parametrize(
    ("schema", "file"), [("vendor.github-actions", ACTION), ("vendor.gitlab-ci", TEMPLATE)]
)
def test_the_files_are_what_their_services_take(schema: str, file: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
