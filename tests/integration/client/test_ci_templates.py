"""The steps of the GitHub action and the GitLab template, run against an app with a simulated worker."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from action_runner import ACTION, INSTALLS, Event, Runner, environment, inputs, sh, steps, variables
from client_samples import FIGURES, MODEL, TARGET, FakeWorker, wait_for_workers

from bessemer.client import Client
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import ErrorCode, make_problem
from bessemer.contract.report import Report
from tests.tenant_data import own
from tests.unit.gate_samples import a_report

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "ci" / "gitlab" / "bessemer.yml"
INTERRUPTIBLE = ("env", "--default-signal=INT")
PUSH = Event()
BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail")
WRONG = make_problem(ErrorCode.VERIFY_MISMATCH, "logits[0, 3] is 1.5, not 1.2", stage="verify")


@dataclass(frozen=True)
class Pipeline:
    """A user's checkout, with the programs that a runner has after the installing step."""

    folder: Path
    server: str
    client: Client
    fake_worker: FakeWorker
    runner: Runner

    def play(self, ending: Report | None) -> threading.Thread:
        """Finish the next job with a report or with a mismatch."""
        thread = threading.Thread(target=self._do_next, args=(ending,))
        thread.start()
        return thread

    def _do_next(self, ending: Report | None) -> None:
        while (job := next(self.client.jobs(JobState.QUEUED), None)) is None:
            time.sleep(0.05)
        jobs, attempt = self.fake_worker.store.jobs, self.fake_worker.start(job.id)
        if ending is None:
            jobs.fail(job.id, attempt, WRONG)
            return
        path = self.fake_worker.folder / "report.json"
        path.write_text(ending.model_dump_json())
        blob = own(self.fake_worker.store).artifacts.put_file(path)
        kept = Artifact(
            name="report.json", digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/json"
        )
        jobs.succeed(job.id, attempt, TARGET, True, FIGURES, (kept,))


def install(folder: Path, program: str) -> None:
    """Does the work of the installing step."""
    path = folder / "bin" / "bessemer"
    path.parent.mkdir()
    path.write_text(program)
    path.chmod(0o755)


@pytest.fixture
def pipeline(tmp_path: Path, server: str, client: Client, fake_worker: FakeWorker) -> Iterator[Pipeline]:
    install(tmp_path, f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m bessemer.cli "$@"\n')
    (tmp_path / "net.pt2").write_bytes(MODEL)
    fake_worker.register()
    yield Pipeline(tmp_path, server, client, fake_worker, Runner(tmp_path))
    fake_worker.unregister()


def run_action(pipeline: Pipeline, given: dict[str, str], ending: Report | None, event: Event = PUSH) -> int:
    """Run the action while the job ends in the given way."""
    player = pipeline.play(ending)
    status = pipeline.runner.run({"url": pipeline.server, "model": "net.pt2", **given}, event)
    player.join()
    return status


def test_a_push_and_its_retry_are_compared_with_the_last_passing_run(
    pipeline: Pipeline,
) -> None:
    given = {
        "options": "tune.trials=16\nbenchmark.seconds=1\n",
        "max-latency-ratio": "1.0",
        "max-regress-percent": "10",
        "name": "nets/small",
    }
    assert run_action(pipeline, given, a_report(0.5)) == 0
    first = next(pipeline.client.jobs()).document.request
    assert (first.tune.trials, first.benchmark.seconds) == (16, 1)
    assert run_action(pipeline, given, a_report(0.6), Event(run_id=2)) == 5
    assert run_action(pipeline, given, a_report(0.6), Event(run_id=2, run_attempt=2)) == 5
    summary = (pipeline.folder / "summary.md").read_text()
    verdicts = re.findall(r"^## (.+) net for host: (.+)$", summary, re.MULTILINE)
    assert verdicts == [("⚠️", "passed with 1 warning"), ("❌", "slower"), ("❌", "slower")]
    assert "base .bessemer/base/nets/small.json not found: nothing was compared" in summary
    assert list(pipeline.runner.caches.kept) == ["bessemer:nets/small:main:1-1"]


GATE = """#!/bin/sh
for end in json npz; do
  cat "${BESSEMER_GATE_COMPARE%json}$end" 2>/dev/null || echo "no $end"
done > compared
mkdir -p .bessemer/new
for end in json npz; do
  echo "$BESSEMER_GATE_TARGET $end" > "${BESSEMER_GATE_REPORT%json}$end"
done
"""


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (PUSH, "main"),
        (Event(ref_name="release-1"), "release-1"),
        (Event(ref_name="release"), "main"),
        (Event(ref_name="a,b"), "a,b"),
        (Event("pull_request", ref_name="7/merge", base_ref="release-1"), "release-1"),
        (Event("pull_request", ref_name="7/merge", base_ref="new"), "main"),
        (Event("workflow_dispatch", run_attempt=2), "main"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.ref_name,
)
def test_a_run_is_compared_with_its_branch_or_with_the_default_one(
    tmp_path: Path, event: Event, found: str
) -> None:
    """A gate that prints its base and writes the branch's name as its report."""
    install(tmp_path, GATE)
    runner = Runner(tmp_path)
    for run_id, branch in enumerate(("main", "release-1", "a,b"), 2):
        assert runner.run({"target": branch}, Event(ref_name=branch, run_id=run_id)) == 0
    assert runner.run({}, event) == 0
    assert (tmp_path / "compared").read_text() == f"{found} json\n{found} npz\n"
    assert len(runner.caches.kept) == 3 + (event.event_name != "pull_request")


def test_leftovers_in_the_checkout_are_not_used_as_the_base(tmp_path: Path) -> None:
    install(tmp_path, GATE)
    for _ in range(2):
        assert Runner(tmp_path).run({}, PUSH) == 0
    assert (tmp_path / "compared").read_text() == "no json\nno npz\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("ending", "bounds", "status"),
    [
        (None, {}, 4),
        (a_report(library_bytes=2000), {"max-library-bytes": "1000"}, 6),
        (a_report(library_bytes=2000), {"max-size": "1kB", "max-library-bytes": "3000"}, 6),
        (a_report(p50_ms=2), {"max-latency-ms": "1.5"}, 5),
        (a_report(memory_bytes=3 << 20), {"max-memory": "2MiB"}, 6),
    ],
    ids=["wrong", "larger", "size", "milliseconds", "memory"],
)
def test_the_status_names_the_regressed_figures(
    pipeline: Pipeline, ending: Report | None, bounds: dict[str, str], status: int
) -> None:
    assert run_action(pipeline, bounds, ending) == status


def test_a_cancelled_run_of_the_action_cancels_its_compilation(pipeline: Pipeline) -> None:
    """The runner signals the step's shell, not the processes that it started."""
    (step,) = (step for step in steps() if "bessemer gate" in step.get("run", ""))
    script = pipeline.folder / "step.sh"
    script.write_text(step["run"])
    given = {"url": pipeline.server, "model": "net.pt2"}
    shell = subprocess.Popen(
        [*INTERRUPTIBLE, *BASH, script],
        cwd=pipeline.folder,
        env=environment(pipeline.folder, variables(step, {**inputs(given), **PUSH.context()})),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    job_id = next(line.split()[1] for line in shell.stdout if line.startswith("compilation "))
    shell.send_signal(signal.SIGINT)
    try:
        assert shell.wait(timeout=120) == 130
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
    assert pipeline.client.job(job_id).state is JobState.CANCELLED


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "has_worker", "words"),
    [
        ((), False, "it waits for a live worker: none has sent a heartbeat lately"),
        (("--queue-timeout", "1"), False, "within 1 s: it waits for a live worker"),
        (
            ("--queue-timeout", "1"),
            True,
            "within 1 s: it is number 1 in the queue; live workers that can run it: 1",
        ),
    ],
    ids=["at-once", "absent", "busy"],
)
def test_a_gate_without_a_capable_worker_names_the_need_and_cancels(
    tmp_path: Path,
    server: str,
    client: Client,
    fake_worker: FakeWorker,
    arguments: tuple[str, ...],
    has_worker: bool,
    words: str,
) -> None:
    (tmp_path / "net.pt2").write_bytes(MODEL)
    with fake_worker.living() if has_worker else nullcontext():
        wait_for_workers(client, int(has_worker))
        ran = subprocess.run(
            [sys.executable, "-m", "bessemer.cli", "gate", "net.pt2", "--summary", "summary.md", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "BESSEMER_URL": server, "GITHUB_ACTIONS": "true"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert ran.returncode == 1
    assert words in ran.stderr
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## ❌ net.pt2: no verdict\n") and words in summary
    assert "::error title=Bessemer gate::net.pt2: no verdict: error: no " in ran.stdout
    assert next(client.jobs()).state is JobState.CANCELLED


def test_the_action_installs_the_client_of_its_own_checkout() -> None:
    (script,) = (step["run"] for step in steps() if INSTALLS in step.get("run", ""))
    folder = re.search(r'"\$GITHUB_ACTION_PATH/([./]+)"', script)
    assert folder is not None
    assert (ACTION.parent / folder[1] / "pyproject.toml").resolve() == ROOT / "pyproject.toml"


def test_the_gitlab_template_writes_summary_junit_and_report_and_keeps_passing_ones(
    pipeline: Pipeline,
) -> None:
    job = yaml.safe_load(TEMPLATE.read_text())[".bessemer-gate"]
    given = {
        **job["variables"],
        **job["rules"][0]["variables"],
        "BESSEMER_URL": pipeline.server,
        "BESSEMER_GATE_MODEL": "net.pt2",
        "BESSEMER_GATE_MAX_REGRESS_PERCENT": "10",
    }
    before = [line for line in job["before_script"] if INSTALLS not in line]
    statuses = []
    for ratio in (0.5, 0.6):
        player = pipeline.play(a_report(ratio))
        statuses.append(sh(pipeline.folder, "\n".join([*before, *job["script"]]), given))
        player.join()
        assert sh(pipeline.folder, "\n".join(job["after_script"]), given) == 0
    assert statuses == [0, 5]
    left = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
    assert all((pipeline.folder / path).is_file() for path in left)
    assert (pipeline.folder / ".bessemer" / "summary.md").read_text().count("## ") == 1
    cached = [path for cache in job["cache"] for path in cache["paths"] if path.endswith(".json")]
    kept = [Report.model_validate_json((pipeline.folder / path).read_bytes()) for path in cached]
    expected = a_report(0.5)
    assert [each.model_copy(update={"request": expected.request}) for each in kept] == [expected] * 2
    assert sh(pipeline.folder, "\n".join(before), given) == 0
    assert [path for path in left if (pipeline.folder / path).exists()] == []


def test_the_gitlab_template_keeps_inputs_and_outputs_beside_the_report(tmp_path: Path) -> None:
    install(tmp_path, GATE)
    job = yaml.safe_load(TEMPLATE.read_text())[".bessemer-gate"]
    given = {**job["variables"], **job["rules"][0]["variables"], "BESSEMER_GATE_TARGET": "host"}
    before = [line for line in job["before_script"] if INSTALLS not in line]
    for compared in ("no json\nno npz\n", "host json\nhost npz\n"):
        assert sh(tmp_path, "\n".join([*before, *job["script"]]), given) == 0
        assert (tmp_path / "compared").read_text() == compared
    cached = [path for cache in job["cache"] for path in cache["paths"]]
    assert {path: (tmp_path / path).read_text() for path in cached} == {
        path: f"host {path.rpartition('.')[2]}\n" for path in cached
    }


def test_the_default_branch_in_gitlab_never_unpacks_a_merge_requests_files() -> None:
    job = yaml.safe_load(TEMPLATE.read_text())[".bessemer-gate"]
    default_branch, merge_request = (
        {**job["variables"], **rule.get("variables", {})} for rule in job["rules"]
    )
    for cache in job["cache"]:
        shared = cache.get("unprotect", False)
        policy = cache["policy"].removeprefix("$")
        assert default_branch[policy] == ("push" if shared else "pull-push")
        assert merge_request[policy] == "pull"
        compared = merge_request if shared else default_branch
        base = compared["BESSEMER_GATE_COMPARE"]
        assert cache["paths"] == [base, base.replace(".json", ".npz")]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "status", "heading", "words"),
    [
        ("net.pt2 --option stop_after=translate", 2, "net.pt2: refused", "remove stop_after"),
        (
            "net.pt2 --option benchmark.baselines= --max-latency-ratio 1",
            2,
            "net.pt2: refused",
            "the latency bounds need torch-eager",
        ),
        (
            "net.pt2 --max-latency-ratio fast",
            2,
            "net.pt2: refused",
            "Invalid value for '--max-latency-ratio'",
        ),
        ("net.pt2 --max-memory lots", 2, "net.pt2: refused", "'lots' is not a size such as 64MiB"),
        (
            "net.pt2 --max-size 10banana",
            2,
            "net.pt2: refused",
            "BESSEMER_GATE_MAX_SIZE or",
        ),
        (
            "net.pt2 --max-regress-percent 9",
            2,
            "net.pt2: refused",
            "a base, but --compare is not given\n  → Add --compare, or write",
        ),
        (
            "net.pt2 --max-regress-percent 9 --max-output-change 9 --compare none.json",
            2,
            "net.pt2: refused",
            "--max-regress-percent and --max-output-change need a base, but base none.json not found",
        ),
        (
            "net.pt2 --max-regress-percent 9 --compare net.pt2 --allow-missing-base",
            2,
            "net.pt2: refused",
            "needs a base, but net.pt2 is not a report of this release",
        ),
        ("net.pt2 --compare none.json", 2, "net.pt2: refused", "error: base none.json not found"),
        (
            "net.pt2 --compare net.pt2 --allow-missing-base",
            2,
            "net.pt2: refused",
            "error: net.pt2 is not a report of this release",
        ),
        (
            "net.pt2 --max-regress-percent 9 --compare none.json --allow-missing-base",
            3,
            "net.pt2: no answer from a Bessemer server",
            "or set --url",
        ),
        ("net.pt2 --golden none.npz", 2, "net.pt2: refused", "none.npz cannot be read as an .npz file"),
        ("net.pt2 --golden net.pt2", 2, "net.pt2: refused", "net.pt2 cannot be read as an .npz file"),
        ("net.pt2 --no-such", 2, "net.pt2: refused", "No such option: --no-such"),
        ("--no-such net.pt2", 2, "the model: refused", "No such option: --no-such"),
        ("net.pt2", 3, "net.pt2: no answer from a Bessemer server", "or set --url"),
    ],
    ids=[
        "stopping",
        "baselines",
        "number",
        "size",
        "variables",
        "base-not-given",
        "base-missing",
        "base-damaged",
        "base-missing-without-bound",
        "base-damaged-without-bound",
        "base-allowed",
        "golden",
        "golden-damaged",
        "option",
        "option-first",
        "unreachable",
    ],
)
def test_a_gate_without_a_verdict_says_why_in_its_summary_and_uploads_nothing(
    tmp_path: Path, arguments: str, status: int, heading: str, words: str
) -> None:
    (tmp_path / "net.pt2").write_bytes(MODEL)
    files = ("--summary", "page/summary.md", "--junit", "page/junit.xml")
    command = ("gate", *arguments.split(), "--url", "http://127.0.0.1:1", *files)
    ran = subprocess.run(
        [sys.executable, "-m", "bessemer.cli", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == status
    assert words in ran.stderr and ".." not in ran.stderr
    page = (tmp_path / "page" / "summary.md").read_text()
    assert page.startswith(f"## ❌ {heading}\n") and words in page and "  → " in page
    suite = ElementTree.parse(tmp_path / "page" / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    assert [words in (error.text or "") for error in suite.iter("error")] == [True]


@pytest.mark.parametrize("file", [ACTION, ROOT / "docs" / "ci.md"], ids=lambda file: file.name)
def test_actions_are_named_by_their_commits(file: Path) -> None:
    named = re.findall(r"uses: \S+@(\S+) # v[\d.]+$", file.read_text(), re.MULTILINE)
    assert len(named) == file.read_text().count("uses: ") > 0
    assert {name for name in named if not re.fullmatch(r"[0-9a-f]{40}", name)} <= {"THE-COMMIT"}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("schema", "file"), [("vendor.github-actions", ACTION), ("vendor.gitlab-ci", TEMPLATE)]
)
def test_the_templates_match_their_services_schemas(schema: str, file: Path) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
