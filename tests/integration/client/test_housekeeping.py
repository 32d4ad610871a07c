"""Labels, logs, invocations and deletion: both clients and the command line against a running app."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from client_samples import LATENCY, FakeWorker

from bessemer import AsyncClient, Client
from bessemer.client import Job
from bessemer.contract.invocation import OUTPUTS
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.tensor import TensorSpec
from bessemer.errors import ConflictError, InvalidArgumentError, NotFoundError
from tests.tenant_data import own, started

ROOT = Path(__file__).parents[3]


INTERRUPTIBLE = ("env", "--default-signal=INT")
"""A shell's background processes inherit an ignored SIGINT, and so may this test run."""


def submitted(client: Client, name: str) -> Job:
    return client.submit(f"the model of {name}".encode(), target="host", labels={"test": name})


def run_invocation(fake_worker: FakeWorker, invocation_id: str) -> None:
    path = fake_worker.folder / OUTPUTS
    path.write_bytes(b"outputs")
    blob = own(fake_worker.store).artifacts.put_file(path)
    artifact = Artifact(
        name=OUTPUTS, digest=blob.digest, size_bytes=blob.size_bytes, media_type="application/zip"
    )
    attempt = started(fake_worker.store.invocations, invocation_id, "w1")
    outputs = (TensorSpec(name="y", shape=(1, 10)),)
    fake_worker.store.invocations.succeed(invocation_id, attempt, 2, LATENCY, outputs, artifact)


def run_the_next(fake_worker: FakeWorker, job: Job) -> None:
    while not (queued := own(fake_worker.store).invocations.page(job.id, 1).items):
        threading.Event().wait(0.02)
    run_invocation(fake_worker, queued[0].id)


def test_a_job_is_found_by_its_label_and_deleted_after_its_end(
    client: Client, fake_worker: FakeWorker
) -> None:
    job = submitted(client, "finding")
    assert [found.id for found in client.jobs(labels={"test": "finding"})] == [job.id]
    assert list(client.jobs(labels={"test": "finding"}, target="x86-64-v3")) == []
    with pytest.raises(InvalidArgumentError, match="label"):
        next(client.jobs(labels={"Test": None}))
    with pytest.raises(ConflictError):
        client.delete_model(job.document.request.model)
    with pytest.raises(ConflictError):
        job.delete()
    fake_worker.fail(job.id)
    job.delete()
    client.delete_model(job.document.request.model)
    with pytest.raises(NotFoundError):
        client.job(job.id)


async def test_the_async_client_labels_and_deletes_jobs_too(
    server: str, client: Client, fake_worker: FakeWorker
) -> None:
    job = submitted(client, "finding asynchronously")
    fake_worker.store.logs.write(job.id, fake_worker.start(job.id), "half a line")
    async with AsyncClient(server) as loop_client:
        (found,) = [found async for found in loop_client.jobs(labels={"test": "finding asynchronously"})]
        assert await found.logs() == "half a line"
        await found.cancel()
        await found.delete()
        await loop_client.delete_model(job.document.request.model)


def test_a_library_is_run_and_its_outputs_fetched(
    client: Client, fake_worker: FakeWorker, tmp_path: Path
) -> None:
    job = submitted(client, "running")
    fake_worker.succeed(job.id)
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY and so on")
    worker = threading.Thread(target=run_the_next, args=(fake_worker, job))
    worker.start()
    invocation = job.invoke({"x": tmp_path / "x.npy"}, runs=3)
    worker.join()
    assert (invocation.latency, [each.id for each in job.invocations()]) == (LATENCY, [invocation.id])
    assert job.invocation(invocation.id) == invocation
    assert job.download_outputs(invocation, tmp_path / "y.npz").read_bytes() == b"outputs"
    with pytest.raises(InvalidArgumentError, match=r"not a \.npy file"):
        job.invoke({"x": Path(__file__)})


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_invocation_is_cancelled(
    number: signal.Signals, status: int, server: str, client: Client, fake_worker: FakeWorker, tmp_path: Path
) -> None:
    job = submitted(client, f"interrupting by {number.name}")
    fake_worker.succeed(job.id)
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY and so on")
    command = ("invoke", job.id, "--input", f"x={tmp_path / 'x.npy'}", "--url", server)
    with subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, "-m", "bessemer.cli", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        invocation_id = process.stdout.readline().split()[1]
        assert process.stdout.readline() == "queued, waiting for a live worker\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (status, f"asked to cancel {invocation_id}\ninterrupted\n")
    assert [each.state for each in job.invocations()] == [JobState.CANCELLED]


def test_the_command_line_lists_logs_and_deletes(
    server: str, client: Client, fake_worker: FakeWorker
) -> None:
    job = submitted(client, "telling")
    attempt = fake_worker.start(job.id)
    fake_worker.store.logs.write(job.id, attempt, "said\x1b[31m so\n")

    def bessemer(*arguments: str) -> str:
        command = [sys.executable, "-m", "bessemer.cli", *arguments]
        environment = {**os.environ, "BESSEMER_URL": server}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        return done.stdout + done.stderr

    assert job.id in bessemer("jobs", "--label", "test=telling", "--after", "2020-01-01")
    assert bessemer("logs", job.id) == "said [31m so\n"
    assert "cancel it, then delete it" in bessemer("delete", job.id)
    fake_worker.store.jobs.cancel_finished(job.id, attempt)
    assert bessemer("delete", job.id) == f"{job.id}: deleted\n"


def test_the_command_line_reads_a_compilation_by_a_name_that_only_one_has(
    server: str, client: Client, fake_worker: FakeWorker
) -> None:
    first, second, other = (
        client.submit(b"a model", target="host", name=name)
        for name in ("nightly run", "nightly run", "release")
    )

    def show(name: str) -> str:
        command = [sys.executable, "-m", "bessemer.cli", "show", name, "--url", server]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr

    assert other.id in show("release")
    several = show("nightly run")
    assert "several compilations are named" in several and first.id in several and second.id in several
    assert "not found" in show("no-such-name")
    assert "not found" in show(" ")
