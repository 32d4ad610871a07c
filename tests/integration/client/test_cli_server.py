"""The command line as a process, against a running app with a simulated worker."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from client_samples import DIGEST, MODEL, PATIENCE_SECONDS, FakeWorker, wait_for_workers

from bessemer.client import Client
from bessemer.contract.base import now
from bessemer.contract.capability import Capability
from bessemer.contract.job import Compilation, CompilationPage, JobState
from bessemer.contract.model import Model, ModelState
from bessemer.contract.queue import TaskKind
from bessemer.contract.service import RunningTask, WorkerList
from bessemer.contract.stage import Stage
from bessemer.contract.usage import Usage
from bessemer.errors import NotFoundError

ROOT = Path(__file__).parents[3]
INTERRUPTIBLE = ("env", "--default-signal=INT")
"""A shell's background processes inherit an ignored SIGINT, and so may this test run."""


def bessemer(server: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bessemer.cli", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "BESSEMER_URL": server},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(
        "def export():\n"
        "    print('exporting')\n"
        "    return b'made by a function', {'x': ('n', 784)}, {'n': (1, 64)}\n"
        "def broken():\n"
        "    return 1 / 0\n"
    )
    return path


def newest(client: Client, not_this: str | None) -> str:
    """Wait for a job newer than the given one and return its id."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        job = next(client.jobs(JobState.QUEUED), None)
        if job is not None and job.id != not_this:
            return job.id
        time.sleep(0.05)
    raise AssertionError("nothing was submitted")


def play(client: Client, part: str, fake_worker: FakeWorker) -> threading.Thread:
    """Finish the next submitted job in the background."""
    before = next(client.jobs(JobState.QUEUED), None)
    act = {"succeed": fake_worker.succeed, "fail": fake_worker.fail, "start": fake_worker.start}[part]
    known = before.id if before else None
    thread = threading.Thread(target=lambda: act(newest(client, known)))
    thread.start()
    return thread


def test_json_is_the_final_document_and_nothing_else(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    player = play(client, "succeed", fake_worker)
    output = tmp_path / "out"
    ran = bessemer(
        server, "compile", model, "--input", "x=1x784:float32", "--option", "trials=64", "--json",
        "--output", output, "--option", "cores=2",
    )  # fmt: skip
    player.join()
    document = Compilation.model_validate_json(ran.stdout)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["verified"] is True
    assert document.request.tune.trials == 64
    assert document.figures is not None
    assert (output / "model.so").is_file()
    assert "tune" in ran.stderr


@pytest.mark.parametrize("command", ["compile", "check"])
def test_extensions_travel_with_a_compilation(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path, command: str
) -> None:
    files = [tmp_path / "a.py", tmp_path / "b.py"]
    for file in files:
        file.write_text(f"# {file.name}")
    player = play(client, "fail", fake_worker)
    ran = bessemer(server, command, model, "--extension", files[0], "--extension", files[1], "--json")
    player.join()
    digests = tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    assert Compilation.model_validate_json(ran.stdout).request.extensions == digests
    missing = bessemer(server, command, model, "--extension", tmp_path / "missing.py")
    assert (missing.returncode, "missing.py cannot be read" in missing.stderr) == (2, True)


def test_a_check_prints_its_page_in_the_console(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    player = play(client, "fail", fake_worker)
    ran = bessemer(server, "check", model)
    player.join()
    job_id = next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("compilation "))
    assert f"console {client.console}/compilations/{job_id.rstrip(':')}\n" in ran.stdout


def test_without_a_terminal_there_are_plain_lines(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    player = play(client, "succeed", fake_worker)
    ran = bessemer(server, "compile", model, "--option", "trials=64")
    player.join()
    assert ran.returncode == 0, ran.stderr
    assert "tune       3 of 64 trials\ntune       1.50 s\n" in ran.stdout
    assert "verified    yes\n" in ran.stdout
    assert "library / torch-eager: 0.5 (p10 to p90 of the rounds: " in ran.stdout
    assert "\x1b" not in ran.stdout
    job_id = next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("compilation "))
    assert f"console {client.console}/compilations/{job_id.rstrip(':')}\n" in ran.stdout


def test_a_function_provides_the_model_its_inputs_and_dimensions(
    server: str, client: Client, entry: Path
) -> None:
    ran = bessemer(server, "compile", f"{entry}:export", "--dimension", "n=1..8", "--detach", "--json")
    document = Compilation.model_validate_json(ran.stdout)
    assert client.model(document.request.model).size_bytes == len(b"made by a function")
    assert list(map(str, document.request.inputs)) == ["x=nx784"]
    assert str(document.request.dimensions["n"]) == "1..8"
    assert ran.stderr == f"building the model of {entry}:export\nexporting\n"


def test_a_failed_compilation_prints_places_and_advice(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    player = play(client, "fail", fake_worker)
    ran = bessemer(server, "compile", model, "--json")
    player.join()
    assert ran.returncode == 1
    assert Compilation.model_validate_json(ran.stdout).state is JobState.FAILED
    assert "aten.foo has no translation." in ran.stderr
    assert "aten.foo in module encoder.layers.0 (net.py:12)" in ran.stderr
    assert "Rewrite the listed places" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("command", "number", "status", "says", "state"),
    [
        ("compile", signal.SIGINT, 130, "bessemer show --follow {}", JobState.QUEUED),
        ("compile", signal.SIGTERM, 143, "bessemer show --follow {}", JobState.QUEUED),
        ("gate", signal.SIGINT, 130, "asked to cancel {}", JobState.CANCELLED),
        ("gate", signal.SIGTERM, 143, "asked to cancel {}", JobState.CANCELLED),
    ],
)
def test_an_interrupt_detaches_a_users_job_and_cancels_a_pipelines_job(
    server: str,
    client: Client,
    model: Path,
    command: str,
    number: int,
    status: int,
    says: str,
    state: JobState,
) -> None:
    before = next(client.jobs(JobState.QUEUED), None)
    summary = model.with_name("summary.md")
    own = ("--queue-timeout", "600", "--summary", str(summary)) if command == "gate" else ()
    process = subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, "-m", "bessemer.cli", command, str(model), "--url", server, *own],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    job_id = newest(client, before.id if before else None)
    assert process.stdout is not None
    while "queued" not in process.stdout.readline():
        pass
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == status
    assert says.format(job_id) in errors
    assert client.job(job_id).state is state
    if command == "gate":
        text = summary.read_text()
        assert text.startswith(f"## ❌ {model}: interrupted\n".replace("_", "\\_"))
        assert says.format(job_id) in text


@pytest.mark.parametrize(("end", "status"), [("succeed", 0), ("fail", 1)])
def test_a_detached_job_is_followed_to_its_end(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, end: str, status: int
) -> None:
    detached = bessemer(server, "compile", model, "--detach")
    job_id = detached.stdout.strip()
    assert (
        f"bessemer show --follow {job_id}` or open {client.console}/compilations/{job_id}" in detached.stderr
    )
    with subprocess.Popen(
        [sys.executable, "-m", "bessemer.cli", "show", "--follow", job_id, "--url", server],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        {"succeed": fake_worker.succeed, "fail": fake_worker.fail}[end](job_id)
        printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == status
    assert first.startswith(f"compilation {job_id}: queued, waiting for a live worker")
    assert f"compilation {job_id}: {client.job(job_id).state}" in printed


def test_a_detached_job_is_shown_listed_and_cancelled(server: str, model: Path) -> None:
    job_id = bessemer(server, "compile", model, "--detach").stdout.strip()
    shown = Compilation.model_validate_json(bessemer(server, "show", job_id, "--json").stdout)
    page = CompilationPage.model_validate_json(bessemer(server, "jobs", "--state", "queued", "--json").stdout)
    cancelled = Compilation.model_validate_json(bessemer(server, "cancel", job_id, "--json").stdout)
    assert shown.id == job_id
    assert job_id in [item.id for item in page.items]
    assert cancelled.state is JobState.CANCELLED


def test_jobs_says_on_standard_error_that_there_are_more(server: str, model: Path) -> None:
    bessemer(server, "compile", model, "--detach", "--label", "listed=few")
    assert bessemer(server, "jobs", "--label", "listed=few", "--limit", "1").stderr == ""
    bessemer(server, "compile", model, "--detach", "--label", "listed=few", "--option", "cache=false")
    listed = bessemer(server, "jobs", "--label", "listed=few", "--limit", "1")
    assert (listed.stdout.count("\n"), listed.stderr) == (2, "1 shown; --limit shows more\n")


def test_a_bundle_and_an_artifact_are_downloaded(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    job = client.submit(model)
    fake_worker.succeed(job.id)
    folder, single = tmp_path / "bundle", tmp_path / "single.tar.zst"
    assert bessemer(server, "download", job.id, "--output", folder).returncode == 0
    log = tmp_path / "log.txt"
    assert bessemer(server, "download", job.id, "--output", log, "--artifact", "log.txt").returncode == 0
    assert log.read_bytes() == b""  # the log is not listed
    fetched = bessemer(server, "download", job.id, "--output", single, "--artifact", "bundle.tar.zst")
    assert fetched.returncode == 0, fetched.stderr
    assert (folder / "SHA256SUMS").is_file()
    assert (
        bessemer(server, "download", job.id, "--output", folder, "--artifact", "bundle.tar.zst").returncode
        == 0
    )
    assert (folder / "bundle.tar.zst").read_bytes() == single.read_bytes()


def test_inspect_prints_format_and_signature(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    client.upload(model)
    fake_worker.inspect(DIGEST)
    ran = bessemer(server, "inspect", model)
    assert "format      pt2" in ran.stdout
    assert "x=1x784:float32" in ran.stdout


def test_the_document_of_a_rejected_model_is_printed_as_json(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    model.write_bytes(b"no model")
    fake_worker.reject(client.upload(model).digest)
    ran = bessemer(server, "inspect", model, "--json")
    assert (ran.returncode, Model.model_validate_json(ran.stdout).state) == (1, ModelState.REJECTED)
    assert "[model-not-recognized]" in ran.stderr


def test_models_are_listed(server: str, client: Client, fake_worker: FakeWorker, model: Path) -> None:
    client.upload(model)
    fake_worker.inspect(DIGEST)
    ran = bessemer(server, "models", "--state", "ready", "--format", "pt2")
    assert re.search(rf"{DIGEST}  model +ready  pt2 +7 +{len(MODEL)} B", ran.stdout)


def test_workers_are_listed_with_their_tasks(server: str, fake_worker: FakeWorker) -> None:
    running = RunningTask(kind=TaskKind.COMPILE, id="a-long-job", began_at=now(), stage=Stage.TUNE)
    fake_worker.register(running=(running,))
    table, document = bessemer(server, "workers"), bessemer(server, "workers", "--json")
    fake_worker.unregister()
    heading, row = table.stdout.splitlines()
    assert heading.split()[:5] == ["worker", "host", "processor", "mcpu", "cores"]
    assert row.split()[:5] == ["w1", "build-1", "EPYC", "znver4", "2"]
    assert "compile a-long-job tune for" in row
    (worker,) = WorkerList.model_validate_json(document.stdout).items
    assert worker.running == (running,)


def test_a_tenants_usage_is_shown_with_its_limits(server: str, client: Client) -> None:
    table, document = bessemer(server, "usage"), bessemer(server, "usage", "--json")
    heading, *rows = table.stdout.splitlines()
    assert heading.split() == ["default", "used", "limit"]
    assert re.search(r"^uploads +0 +16$", table.stdout, re.MULTILINE)
    assert len(rows) == len(Usage.model_fields) - 2  # the tenant is the heading; the day's end is not shown
    assert Usage.model_validate_json(document.stdout) == client.usage()


def test_targets_are_listed(server: str) -> None:
    listed = bessemer(server, "targets").stdout
    assert re.search(
        r"^x86-64-v3 +(none|native) +(none|native) +(none|native) +x86-64 with AVX2", listed, re.M
    )
    assert "skylake-avx512, " in listed
    assert "_" not in re.sub(r"cuda-sm_\d+", "", listed)
    assert not re.search(r"-$", listed, re.MULTILINE), "a name is broken at its hyphen"


@contextmanager
def a_plain_worker(fake_worker: FakeWorker) -> Iterator[None]:
    """A live worker whose processor lacks what `sapphirerapids` needs."""
    sapphire = Capability(architecture="x86_64", processors={"sapphirerapids": ("amx-tile",)})
    fake_worker.register(capability=sapphire)
    yield
    fake_worker.unregister()


def test_a_target_that_no_worker_takes_is_refused_at_once_and_nothing_is_uploaded(
    server: str, client: Client, fake_worker: FakeWorker, tmp_path: Path
) -> None:
    model = tmp_path / "new.pt2"
    model.write_bytes(os.urandom(16))
    jobs = sum(1 for _ in client.jobs())
    with a_plain_worker(fake_worker):
        ran = bessemer(server, "compile", model, "--target", "sapphirerapids", "--no-wait")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "w1 (znver4) lacks amx-tile" in ran.stderr
    assert sum(1 for _ in client.jobs()) == jobs
    with pytest.raises(NotFoundError):
        client.model(hashlib.sha256(model.read_bytes()).hexdigest())


def test_a_job_that_no_worker_takes_says_so_in_its_first_line(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    with a_plain_worker(fake_worker):
        wait_for_workers(client, 1)
        ran = bessemer(server, "compile", model, "--target", "sapphirerapids", "--detach")
    first, _ = ran.stderr.splitlines()
    job_id = ran.stdout.strip()
    assert first.startswith(
        f"compilation {job_id}: queued, waiting for a worker whose processor can run code"
    )
    assert first.endswith("w1 (znver4) lacks amx-tile")
    client.job(job_id).cancel()


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("compile", "absent.pt2"), 2, "cannot be read"),
        (("compile", "{model}", "--option", "trails=3"), 2, "tune.trials"),
        (("compile", "{model}", "--target", "znver55"), 2, "did you mean 'znver5'"),
        (("compile", "{model}", "--target", "nvidia/tesla-p100"), 2, "[target-unsupported]"),
        (("compile", "{model}", "--no-wait"), 1, "It needs a live worker"),
        (("check", "{model}", "--no-wait"), 1, "It needs a live worker"),
        (("compile", "{model}", "--input", "x=1x"), 2, "is not a shape"),
        (("compile", "{model}", "--input", "y=1x9"), 2, "'y'"),
        (("compile", "{model}", "--frob"), 2, "No such option"),
        (("compile", "{model}", "--input", "x=mx9", "--dimension", "n=1..8"), 2, "names 'm', which has no"),
        (("check", "{entry}:broken"), 1, "ZeroDivisionError: division by zero (net.py:"),
        (("show", "no-such-job"), 1, "no-such-job"),
        (("targets", "--url", "http://127.0.0.1:1"), 3, "bessemer serve"),
        (("targets", "--url", "nonsense"), 2, "is not a URL"),
    ],
)
def test_errors_have_their_status_and_no_traceback(
    server: str,
    client: Client,
    fake_worker: FakeWorker,
    model: Path,
    entry: Path,
    arguments: tuple[str, ...],
    status: int,
    says: str,
) -> None:
    client.upload(model)
    fake_worker.inspect(DIGEST)
    ran = bessemer(server, *(argument.format(model=model, entry=entry) for argument in arguments))
    assert ran.returncode == status
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stdout == ""


def test_a_log_is_followed_until_the_job_ends(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    job = client.submit(model)
    attempt = fake_worker.start(job.id)
    fake_worker.store.logs.write(job.id, attempt, "first\nsec")
    with subprocess.Popen(
        [sys.executable, "-m", "bessemer.cli", "logs", job.id, "--follow", "--url", server],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        fake_worker.store.logs.write(job.id, attempt, "first\nsecond\nthird")
        assert process.stdout.readline() == "second\n"
        job.cancel()
        assert process.communicate(timeout=PATIENCE_SECONDS)[0] == "third\n"
    assert process.returncode == 0


def test_a_bundle_path_is_an_error_when_the_job_stops_before_package(
    server: str, model: Path, tmp_path: Path
) -> None:
    ran = bessemer(server, "compile", model, "--output", tmp_path, "--option", "stop_after=translate")
    assert ran.returncode == 2
    assert "stop_after=translate produces none" in ran.stderr


def test_a_detached_job_takes_no_folder_for_its_bundle(server: str, model: Path, tmp_path: Path) -> None:
    ran = bessemer(server, "compile", model, "--target", "host", "--output", tmp_path / "out", "--detach")
    assert ran.returncode == 2
    assert "leave out --output, and fetch it with `bessemer download ID --output DIR`" in ran.stderr


def test_a_nonempty_folder_is_refused_before_submission(
    server: str, client: Client, model: Path, tmp_path: Path
) -> None:
    before = [job.id for job in client.jobs()]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep")
    ran = bessemer(server, "compile", model, "--output", tmp_path / "out")
    assert ran.returncode == 2
    assert "out is not empty; choose another directory, or add --force" in ran.stderr
    assert [job.id for job in client.jobs()] == before


@pytest.mark.parametrize("force", [False, True])
def test_a_bundle_needs_an_empty_folder_unless_forced(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path, force: bool
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    if force:
        (output / "mine.txt").write_text("keep")
        (output / "model.so").write_text("of an earlier bundle")
    player = play(client, "succeed", fake_worker)
    ran = bessemer(server, "compile", model, "--output", output, *["--force"] * force)
    player.join()
    assert ran.returncode == 0, ran.stderr
    assert (output / "model.so").read_text() != "of an earlier bundle"
    assert (output / "mine.txt").exists() == force


def test_a_job_without_snapshots_names_the_option_that_keeps_them(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    job = client.submit(model, inputs={"x": (1, 784)})
    fake_worker.fail(job.id)
    for command, option in (("ir", "inspect.ir"), ("code", "inspect.assembly")):
        ran = bessemer(server, command, job.id)
        assert ran.returncode == 1
        assert f"→ Compile again with `--option {option}=true`" in ran.stderr


def test_jobs_are_named_and_their_ids_may_be_shortened(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    model.write_bytes(b"a model with a name")
    options = ("--name", "nightly 7", "--label", "team=vision", "--detach")
    job_id = bessemer(server, "compile", model, *options).stdout.strip()
    plain_id = bessemer(server, "compile", model, "--detach").stdout.strip()
    short, digest = job_id[:8], client.job(job_id).document.request.model
    assert "name        nightly 7" in bessemer(server, "show", short).stdout
    listed = bessemer(server, "jobs", "--name", "nightly 7").stdout.splitlines()
    assert [re.split(r"  +", line)[:3] for line in listed] == [
        ["id", "name", "state"],
        [job_id, "nightly 7", "queued"],
    ]
    assert listed[1].endswith("  team=vision")
    assert client.job(plain_id).document.name == client.model(digest[:8]).name == "model"
    fake_worker.succeed(job_id)
    fetched = subprocess.run(
        [sys.executable, "-m", "bessemer.cli", "download", short, "--url", server],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert fetched.stdout.strip() == f"nightly-7-host-{short}"
    assert bessemer(server, "cancel", plain_id[:8]).stdout.startswith(plain_id)
    again = bessemer(server, "compile", digest[:8], "--detach").stdout.strip()
    assert client.job(again[:8]).document.name == "model"
    client.job(again).cancel()
    for name, gone in ((short, job_id), (plain_id[:8], plain_id), (again[:8], again), (digest[:8], digest)):
        assert bessemer(server, "delete", name).stdout.strip() == f"{gone}: deleted"


def test_an_extension_is_deleted_by_its_digest_together_with_a_model_of_the_same_file(
    server: str, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "rules.py"
    file.write_text("RULES = ()  # deleted")
    digest = client.upload_extension(file).digest
    assert f"{digest}  rules.py" in bessemer(server, "extensions").stdout
    assert bessemer(server, "delete", digest[:12]).stdout == f"{digest}: deleted\n"
    assert (client.upload(file).digest, client.upload_extension(file).digest) == (digest, digest)
    ambiguous = bessemer(server, "delete", digest[:12])
    assert f"matches model {digest} and extension {digest}; give more characters" in ambiguous.stderr
    assert bessemer(server, "delete", digest).stdout == f"{digest}: deleted\n" * 2
    with pytest.raises(NotFoundError):
        client.extension(digest)


def test_deleting_an_unknown_model_names_the_model(server: str) -> None:
    ran = bessemer(server, "delete", "0" * 64)
    assert ran.returncode == 1
    assert "not found" in ran.stderr


def test_a_missing_file_is_not_taken_for_a_digest(server: str) -> None:
    ran = bessemer(server, "compile", "feedface")
    assert ran.returncode == 2
    assert "'feedface' is neither a file nor the start of an uploaded model's digest" in ran.stderr


def test_a_model_from_a_function_is_named_after_its_file(server: str, client: Client, entry: Path) -> None:
    job_id = bessemer(server, "compile", f"{entry}:export", "--detach").stdout.strip()
    assert client.job(job_id).document.name == "net.export"
    client.job(job_id).cancel()
