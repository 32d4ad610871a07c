"""The client against a running app with a simulated worker."""

import threading
from pathlib import Path

import pytest
from client_samples import DIGEST, MODEL, PROBLEM, Stagehand

from bessemer import AsyncClient, Client, TuneOptions
from bessemer.contract.job import EventType, JobState
from bessemer.contract.model import ModelState
from bessemer.contract.problem import ErrorCode
from bessemer.contract.target import ExplicitTarget
from bessemer.contract.tensor import InputSpec
from bessemer.errors import (
    CompilationCancelledError,
    CompilationFailedError,
    InvalidArgumentError,
    ModelRejectedError,
    NotFoundError,
    WaitTimeoutError,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    path.write_bytes(MODEL)
    return path


def test_a_model_is_uploaded_once(client: Client, path: Path) -> None:
    sent: list[tuple[int, int]] = []
    first = client.upload(path)
    second = client.upload(path, lambda done, total: sent.append((done, total)))
    assert first.digest == second.digest == DIGEST
    assert sent == []


def test_progress_ends_with_every_byte(client: Client) -> None:
    sent: list[tuple[int, int]] = []
    data = bytes(1_000_000)
    client.upload(data, lambda done, total: sent.append((done, total)))
    assert sent[-1] == (len(data), len(data))


def test_inspection_is_waited_for(client: Client, stagehand: Stagehand) -> None:
    data = b"to be inspected"
    digest = client.upload(data).digest
    threading.Timer(0.2, stagehand.inspect, [digest]).start()
    assert client.inspect(data).state is ModelState.READY
    assert client.inspect(digest).inspection is not None


def test_a_model_rejected_by_a_transient_failure_is_inspected_again(
    client: Client, stagehand: Stagehand
) -> None:
    digest = client.upload(b"unlucky").digest
    stagehand.reject(digest, ErrorCode.WORKER_LOST)
    assert client.upload(b"unlucky").state is ModelState.INSPECTING


def test_a_rejected_model_raises_with_its_problem(client: Client, stagehand: Stagehand) -> None:
    digest = client.upload(b"to be rejected").digest
    stagehand.reject(digest)
    with pytest.raises(ModelRejectedError, match="It starts with") as caught:
        client.inspect(digest)
    assert caught.value.model.digest == digest


def test_a_job_is_submitted_followed_and_downloaded(
    client: Client, stagehand: Stagehand, path: Path, tmp_path: Path
) -> None:
    job = client.submit(path, inputs={"x": (1, 784)}, target="host", tune=TuneOptions(trials=64))
    assert job.document.request.inputs == (InputSpec(name="x", shape=(1, 784)),)
    assert job.document.request.tune.trials == 64
    stagehand.succeed(job.id)
    seen: list[EventType] = []
    folder = job.wait(on_event=lambda event: seen.append(event.type)).download(tmp_path / "bundle")
    assert (seen[0], seen[-1]) == (EventType.QUEUED, EventType.SUCCEEDED)
    assert job.verified
    assert (folder / "manifest.json").is_file()


def test_events_come_while_the_job_runs(client: Client, stagehand: Stagehand, path: Path) -> None:
    job = client.submit(path)
    events = job.events()
    assert next(events).type is EventType.QUEUED
    stagehand.start(job.id)
    assert next(events).type is EventType.STARTED


def test_a_failed_job_raises_with_its_problem(client: Client, stagehand: Stagehand, path: Path) -> None:
    job = client.submit(path)
    stagehand.fail(job.id)
    with pytest.raises(CompilationFailedError) as caught:
        job.wait()
    assert caught.value.problem == PROBLEM
    assert caught.value.compilation.state is JobState.FAILED


def test_a_cancelled_job_raises(client: Client, path: Path) -> None:
    job = client.submit(path)
    assert job.cancel().state is JobState.CANCELLED
    with pytest.raises(CompilationCancelledError):
        job.wait()


def test_waiting_ends_with_its_timeout_and_leaves_the_job(client: Client, path: Path) -> None:
    job = client.submit(path)
    with pytest.raises(WaitTimeoutError):
        job.wait(timeout=0.3)
    assert job.refresh().state is JobState.QUEUED


def test_a_digest_is_enough_for_a_known_model(client: Client, path: Path) -> None:
    client.upload(path)
    target = ExplicitTarget(mcpu="znver4", cores=1)
    assert client.submit(DIGEST, target=target).document.request.target == target


def test_an_unfinished_job_has_nothing_to_download(client: Client, path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no artifact"):
        client.submit(path).download(tmp_path / "bundle")


def test_an_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError):
        client.job("no-such-job")


def test_jobs_are_listed_newest_first(client: Client, path: Path) -> None:
    ids = [client.submit(path).id for _ in range(3)]
    listed = [job.id for job in client.jobs(JobState.QUEUED)]
    assert listed[:3] == ids[::-1]


def test_targets_and_readiness_are_read(client: Client) -> None:
    assert "host" in [preset.name for preset in client.targets().items]
    assert client.readiness().ready


async def test_the_async_client_behaves_like_the_client(
    server: str, stagehand: Stagehand, path: Path, tmp_path: Path
) -> None:
    async with AsyncClient(server) as client:
        job = await client.submit(path, inputs={"x": "1x784:float32"})
        stagehand.succeed(job.id)
        seen: list[EventType] = []
        await job.wait(on_event=lambda event: seen.append(event.type))
        folder = await job.download(tmp_path / "bundle")
        listed = [other.id async for other in client.jobs(JobState.SUCCEEDED)]
    assert seen[-1] is EventType.SUCCEEDED
    assert (folder / "model.so").read_bytes() == b"machine code"
    assert job.id in listed


async def test_the_async_client_raises_the_same_errors(server: str, stagehand: Stagehand, path: Path) -> None:
    async with AsyncClient(server) as client:
        job = await client.submit(path)
        stagehand.fail(job.id)
        with pytest.raises(CompilationFailedError):
            await job.wait()
        with pytest.raises(InvalidArgumentError):
            await client.upload(path.with_name("absent"))
