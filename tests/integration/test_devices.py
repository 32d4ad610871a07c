"""Devices as processes on loopback, an app, and the worker's side, without a compiler."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import zstandard

from bessemer.contract.access import DEFAULT_TENANT, Scope
from bessemer.contract.base import now
from bessemer.contract.device import Device, DeviceRequest, DeviceTask
from bessemer.contract.job import Compilation
from bessemer.contract.keys import KeyRequest
from bessemer.contract.problem import ErrorCode, Problem
from bessemer.contract.report import DeviceRun
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode, SandboxStatus
from bessemer.contract.service import Worker
from bessemer.store.errors import FencedError
from bessemer.store.rows.device_tasks import Wanted, new_task_id
from bessemer.store.settings import StoreSettings
from bessemer.store.store import Store, open_store
from examples.local_service import local_app
from tests.tenant_data import started
from worker.job.folder import JobFolder
from worker.protocol.messages import CandidatesBuilt
from worker.protocol.order import CandidatesTimed
from worker.supervisor.device_runs import DeviceRunner, Ended, LeaseWatch, Offer
from worker.supervisor.job_record import CompilationRecord
from worker.supervisor.job_runner import JobRunner
from worker.supervisor.retry import StoreRetry
from worker.supervisor.search_step import SearchOnDevices, devices_of, shares_of

LEASE_SECONDS = 2.0
WAIT_SECONDS = 60.0
REPORT = {
    "entries": [
        {
            "name": "main",
            "outputs": [{"name": "y", "elements": 2, "mismatches": 0, "max_absolute_error": 1e-7}],
            "open_ms": 1.5,
            "first_ms": 0.5,
            "times_ms": [0.25, 0.5, 0.75],
        }
    ],
    "peak_memory_bytes": 4096,
}
FINDS = f"for last; do :; done; echo '{json.dumps(REPORT)}' > \"$last\"\n"
WAITS = "while [ ! -e {go} ]; do sleep 0.05; done\n"
SETTINGS = {"BESSEMER_AUTH": "required", "BESSEMER_DEVICE_LOST_SECONDS": str(LEASE_SECONDS)}


@dataclass(frozen=True)
class World:
    """An app, its store, and the keys of devices.

    Attributes:
        go: the file that programs of bundles wait for.
    """

    url: str
    store: Store
    folder: Path
    keys: dict[Scope, str]
    go: Path
    app: subprocess.Popen[bytes]

    def offer(
        self, script: str, name: str | None = None, platform: str = "aarch64", required: bool = True
    ) -> Offer:
        """A bundle with this program, of a running job."""
        job_id = f"job-{new_task_id()}"
        own = self.store.for_tenant(DEFAULT_TENANT)
        request = CompilationRequest.model_validate({"model": "0" * 64, "target": platform})
        own.jobs.submit(job_id, request)
        bundle = self.folder / f"{job_id}.tar.zst"
        bundle.write_bytes(zstandard.compress(archive(script)))
        task = DeviceTask(
            id=new_task_id(),
            digest=own.artifacts.put_file(bundle).digest,
            repeat=10,
            repeat_seconds=1,
            timeout_seconds=WAIT_SECONDS,
            memory_bytes=1 << 30,
            disk_bytes=1 << 20,
        )
        wanted = Wanted(DEFAULT_TENANT, platform, name)
        attempt = started(self.store.jobs, job_id)
        return Offer(job_id, attempt, task, wanted, required, work_seconds=WAIT_SECONDS)

    def batch(self, script: str, count: int = 2, name: str | None = None) -> Offer:
        """Candidates that run this program, of a running job."""
        offer = self.offer(script, name)
        commands = json.dumps({"candidates": [["run", str(number)] for number in range(count)]})
        packed = self.folder / f"{offer.task.id}.tar.zst"
        packed.write_bytes(zstandard.compress(archive(script, {"candidates.json": commands.encode()})))
        digest = self.store.for_tenant(DEFAULT_TENANT).artifacts.put_file(packed).digest
        changes = {"kind": "measure", "rounds": 3, "digest": digest}
        return replace(
            offer,
            task=offer.task.model_copy(update=changes),
            wanted=replace(offer.wanted, measures=True),
        )

    def time(
        self,
        offer: Offer,
        lost: list[str] | None = None,
        wait_seconds: float = WAIT_SECONDS,
        act: Callable[[], object] = lambda: None,
    ) -> tuple[Ended | Problem, list[str]]:
        """Have devices time candidates, and meanwhile act in another thread; what was said, too."""
        runner = DeviceRunner(self.store.device_tasks, self.store.jobs, StoreRetry(5.0), wait_seconds)
        said: list[str] = []

        async def both() -> Ended | Problem:
            async with asyncio.TaskGroup() as group:
                result = group.create_task(runner.time(offer, [] if lost is None else lost, said.append))
                group.create_task(asyncio.to_thread(act))
            return result.result()

        return asyncio.run(both()), said

    def run(
        self,
        offer: Offer,
        wait_seconds: float = WAIT_SECONDS,
        act: Callable[[], object] = lambda: None,
        hold_seconds: float = WAIT_SECONDS,
    ) -> DeviceRun | Problem | None:
        """Have devices run a bundle, and meanwhile act in another thread."""
        tasks, jobs = self.store.device_tasks, self.store.jobs
        runner = DeviceRunner(tasks, jobs, StoreRetry(5.0), wait_seconds, hold_seconds)

        async def both() -> DeviceRun | Problem | None:
            async with asyncio.TaskGroup() as group:
                result = group.create_task(runner.run(offer))
                group.create_task(asyncio.to_thread(act))
            return result.result()

        return asyncio.run(both())

    def said(self, offer: Offer) -> list[str]:
        """What the events of a job say that it waits for."""
        events = self.store.for_tenant(DEFAULT_TENANT).jobs.events_after(offer.job_id, 0)
        return [event.data["detail"] for event in events if event.type == "progress"]

    def holder(self, offer: Offer) -> str:
        """The device that has a task; waits until one does."""

        def device() -> str | None:
            status = self.store.device_tasks.status(offer.task.id)
            return status.device.name if status and status.device else None

        return eventually(device)

    def live(self) -> set[tuple[str, str]]:
        """The live devices by name and id, which differs each time that one registers."""
        devices = self.store.for_tenant(DEFAULT_TENANT).devices.live()
        return {(device.name, device.id) for device in devices}

    @contextmanager
    def device(
        self, name: str, *options: str, scope: Scope = Scope.DEVICE
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A registered device with this name."""
        command = [sys.executable, "-m", "worker.device", "--url", self.url, "--name", name]
        known = self.live()
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--platform", "aarch64", "--folder", str(folder), *options],
                env=os.environ | {"BESSEMER_API_KEY": self.keys[scope]},
                stderr=log,
            )
        try:
            eventually(lambda: name in dict(self.live() - known) or process.poll() is not None)
            yield process
        finally:
            process.terminate()
            process.wait(20)


def eventually(condition: Callable[[], object]) -> str:
    """What a condition returns as soon as that is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return str(found)


def a_worker(name: str) -> Worker:
    sandbox = SandboxStatus(mode=SandboxMode.OFF, layers=())
    facts = {"host": "h", "processor": "p", "mcpu": "znver4", "cores": 2, "versions": {}}
    return Worker.model_validate({"id": name, "sandbox": sandbox, "seen_at": now(), **facts})


MANIFEST = {"manifest.json": b'{"program": "run"}'}


def archive(script: str, others: Mapping[str, bytes] = MANIFEST) -> bytes:
    made = io.BytesIO()
    files = {"run": f"#!/bin/sh\n{script}".encode(), **others}
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """In a folder that others can pass through: the programs of a root's device run as another user."""
    with tempfile.TemporaryDirectory(prefix="bessemer-devices-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield from opened(folder)


def opened(folder: Path) -> Iterator[World]:
    settings = StoreSettings(data=folder / "data", device_lost_seconds=LEASE_SECONDS)
    with local_app(folder / "data", SETTINGS) as app, closing(open_store(settings)) as store:
        keys = {scope: store.keys.create(KeyRequest(scope=scope)).key for scope in Scope}
        yield World(app.url, store, folder, keys, folder / "go", app.process)


@pytest.fixture(autouse=True)
def not_yet(world: World) -> None:
    world.go.unlink(missing_ok=True)


def test_a_device_runs_a_bundle_and_leaves_nothing_behind(world: World) -> None:
    with world.device("board"):
        run = world.run(world.offer(FINDS))
    assert isinstance(run, DeviceRun), run
    assert (run.name, run.platform, run.emulated) == ("board", "aarch64", False)
    assert run.latency is not None
    assert (run.latency.runs, run.latency.p50_ms) == (3, 0.5)
    assert [*(world.folder / "board").iterdir()] == []
    assert world.live() == set()


def test_an_emulated_device_verifies_and_its_times_are_not_kept(world: World) -> None:
    with world.device("emulator", "--emulated"):
        run = world.run(world.offer(FINDS))
    assert isinstance(run, DeviceRun), run
    assert (run.emulated, run.latency, run.peak_memory_bytes) == (True, None, None)
    assert [entry.first_ms for entry in run.entries] == [None]


@pytest.mark.sampled
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_another_device_does_what_a_lost_one_had(world: World, number: signal.Signals) -> None:
    offer = world.offer(WAITS.format(go=world.go) + FINDS)
    with ExitStack() as stack:
        processes = {name: stack.enter_context(world.device(name)) for name in ("first", "second")}
        lost = []

        def lose() -> None:
            lost.append(world.holder(offer))
            eventually(lambda: [*(world.folder / lost[0]).rglob("run")])
            processes[lost[0]].send_signal(number)
            (other,) = {"first", "second"} - set(lost)
            eventually(lambda: world.holder(offer) == other)
            world.go.touch()

        run = world.run(offer, act=lose)
        for process in processes.values():
            process.send_signal(signal.SIGCONT)
    assert isinstance(run, DeviceRun), run
    assert run.name != lost[0]


def test_a_killed_devices_program_ends_with_it_and_its_folder_is_emptied_when_it_starts_again(
    world: World,
) -> None:
    pids = world.folder / "pids"
    pids.mkdir(exist_ok=True)
    pids.chmod(0o777)
    script = f"echo $$ > {pids}/$$\n{WAITS.format(go=world.go)}{FINDS}"
    offer = world.offer(script)

    def start_again() -> None:
        eventually(lambda: [*pids.iterdir()])
        first.kill()
        first.wait()
        (pid,) = [path.name for path in pids.iterdir()]
        eventually(lambda: not Path(f"/proc/{pid}").exists())
        world.go.touch()
        assert [*(world.folder / "board").rglob("task-*")]
        with world.device("board"):
            eventually(lambda: not [*(world.folder / "board").rglob("task-*")])
            eventually(lambda: world.store.device_tasks.status(offer.task.id) is None)

    with world.device("board") as first:
        run = world.run(offer, act=start_again)
    assert isinstance(run, DeviceRun), run


def test_a_device_survives_that_its_service_is_away(world: World) -> None:
    offer = world.offer(WAITS.format(go=world.go) + FINDS)

    def go_away() -> None:
        world.holder(offer)
        world.app.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_SECONDS / 4)
        world.app.send_signal(signal.SIGCONT)
        world.go.touch()

    with world.device("board") as process:
        assert isinstance(world.run(offer, act=go_away), DeviceRun)
        assert process.poll() is None


@pytest.mark.parametrize(
    ("script", "code", "detail"),
    [
        ("echo the model failed; exit 1\n", ErrorCode.VERIFY_CRASHED, "on device 'board': the program ended"),
        (
            "kill -ILL $$\n",
            ErrorCode.TARGET_NOT_RUNNABLE,
            "no device could run the bundle: 'board': the prog",
        ),
    ],
)
def test_what_a_device_cannot_verify_is_the_problem(
    world: World, script: str, code: ErrorCode, detail: str
) -> None:
    with world.device("board"):
        result = world.run(world.offer(script))
    assert isinstance(result, Problem)
    assert (result.code, result.detail[: len(detail)]) == (code, detail)


def test_a_bundle_that_kills_its_devices_is_given_up(world: World) -> None:
    offer = world.offer(WAITS.format(go=world.go))

    def kill_all() -> None:
        for _ in range(3):
            with world.device("board") as process:
                world.holder(offer)
                process.kill()
                process.wait()

    result = world.run(offer, act=kill_all)
    assert isinstance(result, Problem)
    assert result.code is ErrorCode.DEVICE_LOST
    assert re.fullmatch(
        r"3 attempts were lost with their devices \((board|unknown)(, (board|unknown)){2}\)", result.detail
    )


def test_a_device_that_keeps_a_task_for_too_long_is_lost_though_it_renews_its_lease(world: World) -> None:
    offer = replace(world.offer(FINDS), work_seconds=0.1)
    devices = world.store.for_tenant(DEFAULT_TENANT).devices
    board = DeviceRequest(name="greedy", platform="aarch64", cores=1, memory_bytes=1)
    device = devices.register(board, shared=False)

    def keep() -> None:
        for _ in range(3):
            eventually(lambda: devices.take(device.id))
            while devices.renew(device.id, offer.task.id):
                time.sleep(0.1)

    result = world.run(offer, act=keep, hold_seconds=0.2)
    devices.remove(device.id)
    assert isinstance(result, Problem)
    assert result.code is ErrorCode.DEVICE_LOST


def test_a_bundle_that_no_device_unpacks_is_a_failure(world: World) -> None:
    offer = world.offer(FINDS)
    hostile = world.folder / "hostile.tar.zst"
    hostile.write_bytes(zstandard.compress(archive(FINDS, {"../manifest.json": b"{}"})))
    digest = world.store.for_tenant(DEFAULT_TENANT).artifacts.put_file(hostile).digest
    with world.device("board"):
        result = world.run(replace(offer, task=offer.task.model_copy(update={"digest": digest})))
    assert isinstance(result, Problem)
    assert result.code is ErrorCode.VERIFY_CRASHED


def test_without_a_device_a_bundle_waits_says_so_and_fails(world: World) -> None:
    offer = world.offer(FINDS, name="absent")
    result = world.run(offer, wait_seconds=0.5)
    missing = "the device 'absent' of the platform aarch64, and none is live"
    assert isinstance(result, Problem)
    assert result.code is ErrorCode.DEVICE_UNAVAILABLE
    assert result.detail == f"the bundle needs {missing}: waited 0.5 s"
    assert world.said(offer) == [f"waiting for {missing}; fails after 0.5 s"]
    assert world.run(world.offer(FINDS, required=False)) is None


def test_a_device_that_comes_while_a_bundle_waits_gets_it(world: World) -> None:
    offer = world.offer(FINDS)

    def come() -> None:
        eventually(lambda: world.said(offer))
        with world.device("late"):
            eventually(lambda: world.store.device_tasks.status(offer.task.id) is None)

    run = world.run(offer, act=come)
    assert isinstance(run, DeviceRun), run
    assert run.name == "late"


def test_a_cancelled_compilation_waits_no_longer(world: World) -> None:
    offer = world.offer(FINDS, name="absent")

    def cancel() -> None:
        eventually(lambda: world.said(offer))
        world.store.workers.beat(a_worker("w1"))  # a job of a lost worker would end at once
        world.store.for_tenant(DEFAULT_TENANT).jobs.request_cancel(offer.job_id)

    result = world.run(offer, act=cancel)
    assert isinstance(result, Problem)
    assert result.code is ErrorCode.CANCELLED


def test_an_attempt_that_another_worker_took_over_waits_no_longer(world: World) -> None:
    offer = world.offer(FINDS, name="absent")

    def take_over() -> None:
        eventually(lambda: world.said(offer))
        started(world.store.jobs, offer.job_id, "w2")

    with pytest.raises(ExceptionGroup) as raised:
        world.run(offer, act=take_over)
    assert isinstance(raised.value.exceptions[0], FencedError)


@pytest.mark.parametrize(
    ("scope", "shared"), [(Scope.DEVICE, False), (Scope.SHARED_DEVICE, True), (Scope.ADMIN, True)]
)
def test_the_key_decides_whom_a_device_serves(world: World, scope: Scope, shared: bool) -> None:
    with world.device("board", scope=scope):
        assert [device.shared for device in world.store.for_tenant("other").devices.live()] == [True] * shared


def test_a_key_that_is_for_reading_ends_the_device(world: World) -> None:
    with world.device("board", scope=Scope.READ) as process:
        assert process.wait(20) == 1
    assert "403: This request needs the scope `device`" in (world.folder / "board.log").read_text()


def test_a_lease_is_lost_when_it_was_not_renewed_for_as_long_as_it_lasts(world: World) -> None:
    clock = [0.0]
    offer = world.offer(FINDS)
    world.store.device_tasks.submit(offer.job_id, offer.attempt, offer.task, offer.wanted)
    status = world.store.device_tasks.status(offer.task.id)
    assert status is not None
    at, lease = now(), LeaseWatch(2.0, lambda: clock[0])
    found = []
    for moment, renewed_at in ((0, 1), (1.9, 1), (1.95, 2), (3.9, 2), (3.95, 2)):
        clock[0] = moment
        found.append(lease.is_lost(replace(status, renewed_at=at + timedelta(seconds=renewed_at))))
    assert found == [False, False, False, False, True]


def counted(world: World) -> str:
    """The beginning of a program that counts its runs, by candidate."""
    runs = world.folder / "runs"
    runs.mkdir(exist_ok=True)
    runs.chmod(0o777)
    for old in runs.iterdir():
        old.unlink()
    return f"echo run >> {runs}/$1\n"


def runs_of(world: World, count: int) -> list[int]:
    files = [world.folder / "runs" / str(number) for number in range(count)]
    return [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]


def test_a_device_times_candidates_and_a_crash_costs_one(world: World) -> None:
    script = f"{counted(world)}[ $1 = 1 ] && kill -SEGV $$\n{FINDS}"
    with world.device("board"):
        ended, said = world.time(world.batch(script, count=3))
    assert isinstance(ended, Ended), ended
    assert {*said} <= {"device 'board' runs the candidates", "waiting for device 'board'"}
    assert [len(found.rounds_ms) for found in ended.result.candidates] == [3, 0, 3]
    assert ended.result.candidates[0].rounds_ms[0] == (0.25, 0.5, 0.75)
    assert "SIGSEGV" in ended.result.candidates[1].failure
    assert runs_of(world, 3) == [3, 1, 3]
    assert [*(world.folder / "board").iterdir()] == []


def shared_out(
    world: World,
    offer: Offer,
    count: int,
    together: bool = False,
    last: Device | None = None,
    wait_seconds: float = 60.0,
) -> tuple[CandidatesTimed, list[str]]:
    """Have the devices of the job's kind time candidates; what was said, too."""
    said: list[str] = []
    tasks, jobs, retry = world.store.device_tasks, world.store.jobs, StoreRetry(5.0)
    limits = SimpleNamespace(limit_disk_bytes=1 << 24, limit_memory_bytes=1 << 30)
    runner = SimpleNamespace(
        store=world.store,
        store_retry=retry,
        settings=limits,
        devices=DeviceRunner(tasks, jobs, retry, wait_seconds),
    )
    output = world.folder / offer.task.id / "output"
    output.mkdir(parents=True)
    (output / "candidates.tar.zst").write_bytes((world.folder / f"{offer.task.id}.tar.zst").read_bytes())
    row = world.store.for_tenant(DEFAULT_TENANT).jobs.get(offer.job_id)
    search = SearchOnDevices(
        cast(JobRunner, runner),
        cast(Compilation, row),
        offer.attempt,
        JobFolder(output.parent),
        cast(CompilationRecord, SimpleNamespace(waits=said.append)),
        last=last,
    )
    built = CandidatesBuilt(
        platform="aarch64",
        count=count,
        together=together,
        rounds=3,
        repeat=10,
        repeat_seconds=1,
        timeout_seconds=WAIT_SECONDS,
    )
    return asyncio.run(search.time(built)), said


@pytest.mark.parametrize(("together", "names"), [(False, {"first", "second"}), (True, {"first"})])
def test_devices_of_a_kind_share_out_candidates_unless_they_are_compared(
    world: World, together: bool, names: set[str]
) -> None:
    offer = world.batch(f"{counted(world)}{FINDS}", count=5)
    with world.device("first"), world.device("second"):
        timed, said = shared_out(world, offer, 5, together)
    assert {device.name for device in timed.devices} == names
    assert [len(candidate.seconds) for candidate in timed.candidates] == [3] * 5
    assert runs_of(world, 5) == [3] * 5
    if not together:
        assert said[0] == "devices 'first', 'second' run the candidates"  # a long wait is reported, too


def test_the_share_of_a_lost_device_goes_to_another_of_its_kind(world: World) -> None:
    offer = world.batch(f"{counted(world)}{WAITS.format(go=world.go)}{FINDS}", count=4)

    def kill() -> None:
        eventually(lambda: sum(map(bool, runs_of(world, 4))) == 2)
        second.kill()
        world.go.touch()

    with world.device("first"), world.device("second") as second, ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill)
        timed, _ = shared_out(world, offer, 4)
        killed.result()
    assert [device.name for device in timed.devices] == ["first", "first"]
    assert [len(candidate.seconds) for candidate in timed.candidates] == [3] * 4


def test_a_search_ends_rather_than_go_on_with_devices_of_another_kind(world: World) -> None:
    offer = world.batch(f"{counted(world)}{FINDS}", count=2)
    with world.device("board"):
        timed, said = shared_out(world, offer, 2, last=a_device("gone", "A53"), wait_seconds=0.5)
    kind = "need a device of the platform aarch64 of the kind that the search began on, and none is live"
    assert timed.devices == ()
    assert kind in timed.reason
    assert kind.removeprefix("need ") in said[0]
    assert runs_of(world, 2) == [0, 0]


def a_device(name: str, processor: str = "A72", busy: bool = False) -> Device:
    board = DeviceRequest(name=name, platform="aarch64", processor=processor, cores=4, memory_bytes=1)
    facts = {"id": "0", "shared": False, "busy": busy, "registered_at": now(), "seen_at": now()}
    return Device.model_validate({**board.model_dump(), **facts, "lease_seconds": 1.0})


@pytest.mark.parametrize(
    ("live", "last", "together", "expected"),
    [
        ((), None, False, (None,)),
        ((a_device("a"), a_device("b")), None, False, ("a", "b")),
        ((a_device("a"), a_device("b")), None, True, ("a",)),
        ((a_device("a"), a_device("b")), a_device("b"), True, ("b",)),
        ((a_device("a", "A53"), a_device("b"), a_device("c")), None, False, ("b", "c")),
        ((a_device("a"), a_device("b", busy=True)), None, False, ("a",)),
        ((a_device("a", busy=True), a_device("b", busy=True)), None, False, ("a",)),
        ((a_device("b"), a_device("c")), a_device("a"), False, ("b", "c")),
        ((a_device("a"), a_device("b", busy=True)), a_device("b"), False, ("a",)),
        ((a_device("a"), a_device("b", busy=True)), a_device("b"), True, ("b",)),
        ((a_device("a", busy=True), a_device("b")), None, True, ("b",)),
        ((a_device("a", ""), a_device("b", "")), None, False, ("a",)),
    ],
)
def test_a_search_keeps_to_one_kind_of_device(
    live: tuple[Device, ...], last: Device | None, together: bool, expected: tuple[str | None, ...]
) -> None:
    assert devices_of(live, last, together) == expected


@pytest.mark.parametrize(
    ("count", "devices", "expected"),
    [
        (5, ("a", "b"), [(0, 2, "a"), (2, 3, "b")]),
        (1, ("a", "b"), [(0, 1, "a")]),
        (3, (None,), [(0, 3, None)]),
    ],
)
def test_shares_are_nearly_equal(
    count: int, devices: tuple[str | None, ...], expected: list[tuple[int, int, str | None]]
) -> None:
    assert [(share.first, share.count, share.device) for share in shares_of(count, devices)] == expected


def test_candidates_of_a_killed_device_go_to_another(world: World) -> None:
    offer = replace(world.batch(f"{counted(world)}{WAITS.format(go=world.go)}{FINDS}"), preferred="first")
    lost: list[str] = []

    def kill() -> None:
        assert world.holder(offer) == "first"
        eventually(lambda: any(runs_of(world, 2)))
        first.kill()
        eventually(lambda: world.holder(offer) == "second")
        world.go.touch()

    with world.device("first") as first, world.device("second"):
        ended, said = world.time(offer, lost, act=kill)
    assert isinstance(ended, Ended), ended
    assert (ended.device.name, lost) == ("second", ["first"])
    assert "device 'first' runs the candidates" in said


def test_three_lost_devices_end_the_measurements_of_a_search(world: World) -> None:
    lost = ["a", "b"]
    offer = world.batch(WAITS.format(go=world.go))

    def kill() -> None:
        world.holder(offer)
        process.kill()

    with world.device("board") as process:
        ended, _ = world.time(offer, lost, act=kill)
    assert isinstance(ended, Problem)
    assert (ended.code, lost) == (ErrorCode.DEVICE_LOST, ["a", "b", "board"])


@pytest.mark.parametrize(("name", "measured"), [(None, False), ("emulator", True)])
def test_an_emulated_device_times_candidates_only_if_it_is_named(
    world: World, name: str | None, measured: bool
) -> None:
    with world.device("emulator", "--emulated"):
        offer = world.batch(FINDS, name=name)
        ended, said = world.time(offer, wait_seconds=WAIT_SECONDS if measured else 0.5)
    assert isinstance(ended, Ended) is measured
    if isinstance(ended, Problem):
        assert ended.detail == (
            "the candidates need a device of the platform aarch64, and none is live: waited 0.5 s"
        )
        assert said[0].endswith("and none is live; the search ends after 0.5 s")


def test_candidates_that_no_device_can_run_end_the_measurements(world: World) -> None:
    with world.device("board"):
        ended, _ = world.time(world.batch("kill -ILL $$\n"))
    assert isinstance(ended, Problem)
    assert ended.code is ErrorCode.TARGET_NOT_RUNNABLE
