"""Groups from Python and from the command line, against a running app with a simulated worker."""

import threading
import time
from pathlib import Path

import pytest
from client_samples import PATIENCE_SECONDS, FakeWorker
from test_cli_server import bessemer

from bessemer import AsyncClient, Client, ExplicitTarget, Group, PresetTarget, Submission
from bessemer.contract.group import Group as GroupDocument
from bessemer.contract.job import Compilation, CompilationPage, JobState
from bessemer.contract.options import TuneOptions
from bessemer.errors import ConflictError, InvalidArgumentError, NotFoundError, WaitTimeoutError

TARGETS = ("host", "aarch64")


def submitted(client: Client, model: Path, name: str) -> Group:
    return client.submit_group(model, targets=TARGETS, inputs={"x": (1, 784)}, name=name)


def unplaced(group: Group) -> list[Compilation]:
    """Its compilations without their places in the queue, which change while others come and go."""
    return [job.model_copy(update={"queue": None}) for job in group.document.items]


def play(client: Client, fake_worker: FakeWorker, name: str, parts: tuple[str, ...]) -> threading.Thread:
    """End the compilations of the next group with a name in the background, each as a part says."""

    def act() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(jobs := tuple(client.jobs(JobState.QUEUED, name=name))) < len(parts):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for job, part in zip(reversed(jobs), parts, strict=True):
            {"succeed": fake_worker.succeed, "fail": fake_worker.fail}[part](job.id)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_group_is_submitted_waited_for_and_compared(
    client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    group = client.submit_group(
        model,
        targets=["host", ExplicitTarget(mcpu="znver4", cores=4)],
        inputs={"x": (1, 784)},
        labels={"team": "vision"},
        tune=TuneOptions(trials=8),
    )
    assert [job.document.target_name for job in group.jobs] == ["host", "znver4"]
    assert {job.document.request.tune.trials for job in group.jobs} == {8}
    assert group.document.name == "model"
    fake_worker.succeed(group.jobs[0].id)
    fake_worker.fail(group.jobs[1].id)
    assert group.wait(timeout=PATIENCE_SECONDS).state is JobState.FAILED
    first, second = group.compare().items
    assert (first.state, first.target, second.target) == (JobState.SUCCEEDED, "host", "znver4, 4 cores")
    assert first.latency is not None and first.peer is not None
    assert second.problem is not None and second.outcome.startswith("failed in translate")


def test_a_group_is_found_cancelled_and_deleted(client: Client, model: Path) -> None:
    group = submitted(client, model, "cancelling")
    found = client.group(group.id[:12])
    assert (found.id, unplaced(found)) == (group.id, unplaced(group))
    assert {job.id for job in client.jobs(group=group.id)} == {job.id for job in group.jobs}
    with pytest.raises(ConflictError):
        group.delete()
    with pytest.raises(WaitTimeoutError):
        group.wait(timeout=0.1)
    assert group.cancel().state is JobState.CANCELLED
    group.delete()
    with pytest.raises(NotFoundError):
        client.group(group.id)


async def test_the_asynchronous_client_does_the_same(
    server: str, fake_worker: FakeWorker, model: Path
) -> None:
    async with AsyncClient(server) as client:
        group = await client.submit_group(model, targets=TARGETS, inputs={"x": (1, 784)})
        for job in group.jobs:
            fake_worker.succeed(job.id)
        assert (await group.wait(timeout=PATIENCE_SECONDS)).state is JobState.SUCCEEDED
        assert len((await group.compare()).items) == len(TARGETS)
        assert (await group.refresh()).id == (await client.group(group.id)).id
        await group.delete()


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["host", "host"], "target: the target 'host' is given twice"),
        ([], "target: expected at least one target"),
        (["host", "x86-64-v9"], "target.1: unknown target 'x86-64-v9'"),
    ],
)
def test_targets_that_cannot_be_a_group_are_refused_before_anything_is_sent(
    client: Client, tmp_path: Path, targets: list[str], message: str
) -> None:
    fresh = tmp_path / "fresh.pt2"
    fresh.write_bytes(message.encode())
    before = len(tuple(client.models()))
    with pytest.raises(InvalidArgumentError, match=message):
        client.submit_group(fresh, targets=targets)
    assert len(tuple(client.models())) == before


def test_one_compilation_takes_no_list_and_a_group_no_single_target(client: Client, model: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="target: expected one target, not a list"):
        client.submit(model, target=["host", "aarch64"])  # type: ignore[arg-type]
    digest = client.upload(model).digest
    with pytest.raises(InvalidArgumentError, match="a group needs a list of targets"):
        client.post_group(Submission(model=digest, target=PresetTarget(preset="host")))


def test_the_command_line_waits_for_all_and_fails_if_one_does(
    server: str, client: Client, fake_worker: FakeWorker, model: Path, tmp_path: Path
) -> None:
    player = play(client, fake_worker, "both", ("succeed", "fail"))
    ran = bessemer(
        server, "compile", model, "--target", "host", "--target", "aarch64", "--name", "both",
        "--output", tmp_path / "out",
    )  # fmt: skip
    player.join()
    assert ran.returncode == 1, ran.stderr
    lines = ran.stdout.splitlines()
    assert {"host: succeeded", "aarch64: failed", f"bundle {tmp_path / 'out' / 'host'}"} <= set(lines)
    assert [line.split()[0] for line in lines[-3:]] == ["target", "host", "aarch64"]
    assert "failed in translate: operator-unsupported" in lines[-1]
    assert ran.stderr.startswith("aarch64:\nerror: ")
    assert (tmp_path / "out" / "host" / "model.so").is_file()
    assert not (tmp_path / "out" / "aarch64").exists()
    assert "\x1b" not in ran.stdout


def test_json_is_the_group_and_nothing_else(
    server: str, client: Client, fake_worker: FakeWorker, model: Path
) -> None:
    player = play(client, fake_worker, "as json", ("succeed", "succeed"))
    ran = bessemer(
        server, "compile", model, "--target", "host", "--target", "aarch64", "--name", "as json", "--json",
        "--option", "cores=2",
    )  # fmt: skip
    player.join()
    document = GroupDocument.model_validate_json(ran.stdout)
    assert (ran.returncode, document.state) == (0, JobState.SUCCEEDED), ran.stderr
    assert [job.request.target for job in document.items] == [
        PresetTarget(preset=name, cores=2) for name in TARGETS
    ]


def test_a_detached_group_is_shown_listed_cancelled_and_deleted(
    server: str, client: Client, model: Path
) -> None:
    ran = bessemer(server, "compile", model, "--target", "host", "--target", "aarch64", "--detach")
    group_id = ran.stdout.strip()
    page = f"{client.console}/compare?group={group_id}"
    assert ran.stderr == f"to follow it, run `bessemer show --follow {group_id}` or open {page}\n"
    assert client.group(group_id).state is JobState.QUEUED
    shown = bessemer(server, "show", group_id[:12]).stdout.splitlines()
    assert shown[0] == f"group {group_id}: queued"
    listed = bessemer(server, "jobs", "--group", group_id, "--json").stdout
    assert len(CompilationPage.model_validate_json(listed).items) == len(TARGETS)
    assert bessemer(server, "cancel", group_id).stdout == f"{group_id}: cancelled\n"
    assert bessemer(server, "show", "--follow", group_id).returncode == 1
    assert bessemer(server, "delete", group_id).stdout == f"{group_id}: deleted\n"
    missing = bessemer(server, "show", group_id)
    assert (missing.returncode, "not-found" in missing.stderr) == (1, True)


def test_a_target_given_twice_is_a_mistake_of_usage(server: str, model: Path) -> None:
    ran = bessemer(server, "compile", model, "--target", "host", "--target", "host")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "the target 'host' is given twice" in ran.stderr
