"""The client against a running app with a simulated worker."""

import hashlib
import threading
from pathlib import Path

import pytest
from client_samples import DIGEST, PROBLEM, FakeWorker

from bessemer import AsyncClient, Client, TuneOptions
from bessemer.bundle.manifest import DATABASE_FILES, RECORD_EXTENSIONS, RECORDS_FOLDER
from bessemer.contract.job import EventType, JobState
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.target import ExplicitTarget
from bessemer.contract.tensor import InputSpec
from bessemer.errors import (
    BessemerError,
    CompilationCancelledError,
    CompilationFailedError,
    ConflictError,
    InvalidArgumentError,
    ModelRejectedError,
    NotFoundError,
    WaitTimeoutError,
)


def test_a_model_is_uploaded_once(client: Client, model: Path) -> None:
    sent: list[tuple[int, int]] = []
    first = client.upload(model)
    second = client.upload(model, lambda done, total: sent.append((done, total)))
    assert first.digest == second.digest == DIGEST
    assert sent == []


def test_progress_ends_with_every_byte(client: Client) -> None:
    sent: list[tuple[int, int]] = []
    data = bytes(1_000_000)
    client.upload(data, lambda done, total: sent.append((done, total)))
    assert sent[-1] == (len(data), len(data))


def test_inspection_is_waited_for(client: Client, fake_worker: FakeWorker) -> None:
    data = b"to be inspected"
    digest = client.upload(data).digest
    threading.Timer(0.2, fake_worker.inspect, [digest]).start()
    assert client.inspect(data).state is ModelState.READY
    assert client.inspect(digest).inspection is not None


def test_a_model_rejected_by_a_transient_failure_is_inspected_again(
    client: Client, fake_worker: FakeWorker
) -> None:
    digest = client.upload(b"unlucky").digest
    fake_worker.reject(digest, ErrorCode.WORKER_LOST)
    assert client.upload(b"unlucky").state is ModelState.INSPECTING


def test_a_rejected_model_raises_with_its_problem(client: Client, fake_worker: FakeWorker) -> None:
    digest = client.upload(b"to be rejected").digest
    fake_worker.reject(digest)
    with pytest.raises(ModelRejectedError, match="It starts with") as caught:
        client.inspect(digest)
    assert caught.value.model.digest == digest


def test_a_job_is_submitted_followed_and_downloaded(
    client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    job = client.submit(model, inputs={"x": (1, 784)}, target="host", tune=TuneOptions(trials=64))
    assert job.document.request.inputs == (InputSpec(name="x", shape=(1, 784)),)
    assert job.document.request.tune.trials == 64
    fake_worker.succeed(job.id)
    seen: list[EventType] = []
    folder = job.wait(on_event=lambda event: seen.append(event.type)).download(tmp_path / "bundle")
    assert (seen[0], seen[-1]) == (EventType.QUEUED, EventType.SUCCEEDED)
    assert job.verified
    assert (folder / "manifest.json").is_file()


def test_a_dictionary_of_files_has_a_model_for_each_entry(client: Client, tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.pt2" for name in ("prefill", "decode")}
    for name, path in paths.items():
        path.write_bytes(name.encode())
    request = client.submit(
        paths, entries={"decode": {"inputs": [{"name": "x", "shape": [1]}]}}
    ).document.request
    digests = [hashlib.sha256(name.encode()).hexdigest() for name in paths]
    assert request.models == tuple(digests)
    assert [entry.model for entry in request.entries.values()] == digests
    assert request.entries["decode"].inputs == (InputSpec(name="x", shape=(1,)),)
    with pytest.raises(InvalidArgumentError, match="'decode' is a int"):
        client.submit({"prefill": paths["prefill"], "decode": 3})


def test_extensions_are_uploaded_once_and_named_in_the_request(
    client: Client, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text("RULES = ()")
    digest = hashlib.sha256(b"RULES = ()").hexdigest()
    other = hashlib.sha256(b"REWRITES = ()").hexdigest()
    given = client.upload_extension(file)
    assert (given.digest, given.name) == (digest, "my_rules.py")
    assert client.upload_extension(b"RULES = ()", name="again.py") == given
    job = client.submit(model, extensions=[file, b"REWRITES = ()", digest])
    assert job.document.request.extensions == (digest, other)
    assert job.document.request.extension_names == {digest: "my_rules.py"}
    assert {digest, other} <= {each.digest for each in client.extensions()}
    with pytest.raises(ConflictError, match="need extension"):
        client.delete_extension(other)
    job.cancel()
    client.delete_extension(other)
    with pytest.raises(InvalidArgumentError, match=r"missing\.py cannot be read"):
        client.submit(model, extensions=[tmp_path / "missing.py"])


def test_a_renamed_file_has_its_new_name_in_the_request(client: Client, model: Path, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("def schedule(sch): ...")
    client.upload_extension(tmp_path / "old.py")
    new = (tmp_path / "old.py").rename(tmp_path / "new.py")
    job = client.submit(model, schedules={"linear": f"{new}:schedule"})
    (digest,) = job.document.request.extensions
    assert job.document.request.extension_names == {digest: "new.py"}


def test_a_dictionary_of_models_takes_no_weights(client: Client, model: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="need one IRModule"):
        client.submit({"main": model}, weights="weights.npz")


def test_the_records_of_a_bundle_are_uploaded_with_their_marks(client: Client, tmp_path: Path) -> None:
    names = (*DATABASE_FILES, RECORD_EXTENSIONS)
    (tmp_path / RECORDS_FOLDER).mkdir()
    with pytest.raises(InvalidArgumentError, match=r"does not contain database_workload\.json"):
        client.upload_records(tmp_path)
    for name in names:
        (tmp_path / RECORDS_FOLDER / name).write_text(f"{name} of a search")
    digests = tuple(hashlib.sha256(f"{name} of a search".encode()).hexdigest() for name in names)
    assert client.upload_records(tmp_path) == digests
    (tmp_path / RECORDS_FOLDER / RECORD_EXTENSIONS).unlink()
    assert client.upload_records(tmp_path) == digests[:2]


def test_events_come_while_the_job_runs(client: Client, fake_worker: FakeWorker, model: Path) -> None:
    job = client.submit(model)
    events = job.events()
    assert next(events).type is EventType.QUEUED
    fake_worker.start(job.id)
    assert next(events).type is EventType.STARTED


def test_a_failed_job_raises_with_its_problem(client: Client, fake_worker: FakeWorker, model: Path) -> None:
    job = client.submit(model)
    fake_worker.fail(job.id)
    with pytest.raises(CompilationFailedError) as caught:
        job.wait()
    assert caught.value.problem == PROBLEM
    assert str(caught.value).endswith(f"[{PROBLEM.code}]\n→ {PROBLEM.advice}")
    assert caught.value.compilation.state is JobState.FAILED


def test_a_cancelled_job_raises(client: Client, model: Path) -> None:
    job = client.submit(model)
    assert job.cancel().state is JobState.CANCELLED
    with pytest.raises(CompilationCancelledError):
        job.wait()


def test_waiting_ends_with_its_timeout_and_leaves_the_job(client: Client, model: Path) -> None:
    job = client.submit(model)
    with pytest.raises(WaitTimeoutError):
        job.wait(timeout=0.3)
    assert job.refresh().state is JobState.QUEUED


def test_a_digest_is_enough_for_a_known_model(client: Client, model: Path) -> None:
    client.upload(model)
    target = ExplicitTarget(mcpu="znver4", cores=1)
    assert client.submit(DIGEST, target=target).document.request.target == target


def test_an_unfinished_job_has_nothing_to_download(client: Client, model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no artifact"):
        client.submit(model).download(tmp_path / "bundle")


def test_a_cancelled_job_has_nothing_to_download_which_no_argument_is_to_blame_for(
    client: Client, model: Path, tmp_path: Path
) -> None:
    job = client.submit(model)
    job.cancel()
    with pytest.raises(BessemerError, match="no artifact") as caught:
        job.download(tmp_path / "bundle")
    assert not isinstance(caught.value, InvalidArgumentError)


def test_an_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError):
        client.job("no-such-job")


def test_jobs_are_listed_newest_first(client: Client, model: Path) -> None:
    ids = [client.submit(model).id for _ in range(3)]
    listed = [job.id for job in client.jobs(JobState.QUEUED)]
    assert listed[:3] == ids[::-1]


def test_targets_and_readiness_are_read(client: Client) -> None:
    assert "host" in [preset.name for preset in client.targets().items]
    assert client.readiness().ready


async def test_the_async_client_behaves_like_the_client(
    server: str, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    async with AsyncClient(server) as client:
        job = await client.submit(model, inputs={"x": "1x784:float32"})
        fake_worker.succeed(job.id)
        seen: list[EventType] = []
        await job.wait(on_event=lambda event: seen.append(event.type))
        folder = await job.download(tmp_path / "bundle")
        listed = [other.id async for other in client.jobs(JobState.SUCCEEDED)]
    assert seen[-1] is EventType.SUCCEEDED
    assert (folder / "model.so").read_bytes() == b"machine code"
    assert job.id in listed


async def test_the_async_client_raises_the_same_errors(
    server: str, fake_worker: FakeWorker, model: Path
) -> None:
    async with AsyncClient(server) as client:
        job = await client.submit(model)
        fake_worker.fail(job.id)
        with pytest.raises(CompilationFailedError):
            await job.wait()
        with pytest.raises(InvalidArgumentError):
            await client.upload(model.with_name("absent"))
