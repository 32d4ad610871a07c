"""Compiled functions serve later jobs, and no job can write what serves them."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from tvm import te
from tvm.target import Target
from worker_samples import wait_until

from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.job import JobState
from bessemer.contract.options import BenchmarkOptions
from bessemer.contract.request import CompilationRequest
from bessemer.contract.sandbox import SandboxMode
from bessemer.contract.tensor import TensorSpec
from bessemer.store.queue_port import Task, TaskKind
from tests.integration.worker.conftest import Rig
from worker.compiler.codegen.function_text import key_of, text_of
from worker.errors import ZygoteLostError
from worker.job.folder import make_job_folder, remove_job_folder
from worker.protocol.messages import MAX_OBJECTS, ObjectsRequested
from worker.settings import WorkerSettings
from worker.supervisor import object_cache
from worker.supervisor.job_runner import JobRunner
from worker.supervisor.metrics import WorkerMetrics
from worker.supervisor.object_cache import (
    MAX_TEXT_BYTES,
    MAX_WAITING_BYTES,
    Functions,
    JobObjects,
    ObjectCache,
    ObjectFiles,
)
from worker.supervisor.supervisor import Supervisor
from worker.supervisor.turns import held_turn

KEY, OTHER, SCOPE = "a" * 64, "b" * 64, "scope"
TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "mtriple": "x86_64-linux-gnu"})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.LayerNorm(24), nn.Linear(24, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def net(rig: Rig, name: str, seed: int, tenant: str = DEFAULT_TENANT) -> Task:
    """A queued compilation of a small network with weights of its own."""
    torch.manual_seed(seed)
    path = rig.folder / f"{name}.pt"
    torch.jit.script(Net().eval()).save(path)
    digest = rig.store.for_tenant(tenant).artifacts.put_file(path).digest
    request = CompilationRequest(
        model=digest,
        target={"preset": "host", "cores": 2},
        inputs=(TensorSpec(name="x", shape=(2, 16)),),
        benchmark=BenchmarkOptions(seconds=0.05),
        cache=False,
    )
    rig.store.for_tenant(tenant).jobs.submit(name, request)
    return Task(TaskKind.COMPILE, name)


def counted(rig: Rig) -> tuple[int, int]:
    """How many objects jobs took from the cache, and how many they lacked."""
    cached, missing = (
        rig.metrics.registry.get_sample_value("bessemer_function_objects_total", {"outcome": outcome})
        for outcome in ("cached", "missing")
    )
    assert cached is not None and missing is not None
    return int(cached), int(missing)


async def filled(supervisor: Supervisor, folder: Path, count: int) -> None:
    """Fill the cache until it has as many objects."""
    filling = asyncio.ensure_future(supervisor.fill_cache())
    try:
        await asyncio.to_thread(wait_until, lambda: len(list(folder.glob("*/*"))) >= count)
    finally:
        filling.cancel()


def test_a_later_job_of_the_tenant_takes_its_functions_from_the_cache(rig: Rig) -> None:
    supervisor = rig.supervisor()
    before = counted(rig)
    rig.runner.run(supervisor.handle(net(rig, "first-weights", seed=0)))
    missing = counted(rig)[1] - before[1]
    assert (counted(rig)[0], missing >= 2) == (before[0], True)
    rig.runner.run(filled(supervisor, rig.place.folder / "objects", missing))

    again = net(rig, "second-weights", seed=1)
    rig.runner.run(supervisor.handle(again))
    assert rig.row(again).state is JobState.SUCCEEDED
    assert rig.row(again).verified
    assert counted(rig) == (before[0] + missing, before[1] + missing)


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(ObjectFiles(tmp_path / "objects", limit_bytes=2 * (32 + 10)), WorkerMetrics())


@pytest.fixture
def job(cache: ObjectCache, tmp_path: Path) -> Iterator[JobObjects]:
    folder = make_job_folder(tmp_path / "job", None)
    yield JobObjects(cache, folder, None, SCOPE)
    remove_job_folder(folder.path)


def test_the_least_recently_used_objects_are_evicted(cache: ObjectCache, tmp_path: Path) -> None:
    keys = (KEY, OTHER, "c" * 64)
    for key in keys:
        cache.files.put(SCOPE, key, bytes(10))
        if key == OTHER:
            os.utime(tmp_path / "objects" / SCOPE / OTHER, (1, 1))
    assert [cache.files.get(SCOPE, key) is not None for key in keys] == [True, False, True]


def test_a_damaged_object_is_compiled_again(cache: ObjectCache, tmp_path: Path) -> None:
    cache.files.put(SCOPE, KEY, b"object")
    path = tmp_path / "objects" / SCOPE / KEY
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.files.get(SCOPE, KEY) is None
    cache.files.put(SCOPE, KEY, b"object")
    assert cache.files.get(SCOPE, KEY) == b"object"


def test_an_object_that_never_fits_evicts_no_other(cache: ObjectCache) -> None:
    cache.files.put(SCOPE, KEY, bytes(10))
    cache.files.put("another", OTHER, bytes(100))
    assert cache.files.get(SCOPE, KEY) == bytes(10)
    assert cache.files.get("another", OTHER) is None


def test_what_cannot_be_read_counts_as_missing(cache: ObjectCache, tmp_path: Path) -> None:
    (tmp_path / "objects" / SCOPE / KEY).mkdir(parents=True)
    assert cache.files.get(SCOPE, KEY) is None


def test_tenants_and_compilers_have_parts_of_their_own(cache: ObjectCache, tmp_path: Path) -> None:
    def scopes(files: ObjectFiles) -> set[str]:
        return {files.scope(tenant, compiler) for tenant in ("one", "two") for compiler in (KEY, OTHER)}

    other = ObjectFiles(tmp_path / "other", limit_bytes=1)
    assert len(scopes(cache.files)) == 4
    assert scopes(cache.files) == scopes(ObjectFiles(tmp_path / "objects", limit_bytes=1))
    assert not scopes(cache.files) & scopes(other)


async def test_an_object_is_given_once_and_read_only(cache: ObjectCache, job: JobObjects) -> None:
    cache.files.put(SCOPE, KEY, b"object")
    for _ in range(2):
        assert (await job.find(ObjectsRequested(keys=(KEY, OTHER)))).keys == (KEY,)
    assert job.folder.object_of(KEY).read_bytes() == b"object"
    assert job.folder.object_of(KEY).stat().st_mode & 0o777 == 0o400
    assert job.missing == {OTHER}


async def test_an_object_that_the_job_has_is_not_read_again(
    cache: ObjectCache, job: JobObjects, tmp_path: Path
) -> None:
    cache.files.put(SCOPE, KEY, b"object")
    await job.find(ObjectsRequested(keys=(KEY, KEY)))
    (tmp_path / "objects" / SCOPE / KEY).unlink()
    assert (await job.find(ObjectsRequested(keys=(KEY, KEY)))).keys == (KEY,)
    assert job.missing == set()


def test_a_job_of_another_user_passes_through_the_folder_under_any_umask(
    cache: ObjectCache, tmp_path: Path
) -> None:
    folder = make_job_folder(tmp_path / "private", None)
    before = os.umask(0o077)
    try:
        JobObjects(cache, folder, None, SCOPE)
    finally:
        os.umask(before)
    assert folder.objects.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize(
    ("sandbox", "limit_bytes", "keeps"),
    [
        (SandboxMode.REQUIRED, 1, True),
        (SandboxMode.REQUIRED, 0, False),
        (SandboxMode.BEST_EFFORT, 1, False),
        (SandboxMode.OFF, 1, False),
    ],
)
def test_only_a_worker_that_requires_its_sandbox_keeps_objects(
    sandbox: SandboxMode, limit_bytes: int, keeps: bool
) -> None:
    assert WorkerSettings(sandbox=sandbox, object_cache_bytes=limit_bytes).keeps_objects is keeps


async def test_only_functions_of_a_missing_key_are_compiled_for_it(
    cache: ObjectCache, job: JobObjects
) -> None:
    text = b"functions"
    own = hashlib.sha256(text).hexdigest()
    assert (await job.find(ObjectsRequested(keys=(own, KEY, OTHER)))).keys == ()
    for key in (own, KEY, "c" * 64):
        job.folder.functions(key).write_bytes(text)
    job.folder.functions(OTHER).symlink_to("/etc/passwd")
    await job.settle()
    assert list(cache._waiting.values()) == [Functions(SCOPE, own, text)]


async def test_a_job_that_asks_again_and_again_fills_no_memory(job: JobObjects) -> None:
    for first in range(0, 3 * MAX_OBJECTS, MAX_OBJECTS):
        keys = tuple(f"{number:064x}" for number in range(first, first + MAX_OBJECTS))
        assert (await job.find(ObjectsRequested(keys=keys))).keys == ()
    assert len(job.missing) == MAX_OBJECTS


def test_texts_with_holes_are_read_as_far_as_they_may_wait(job: JobObjects) -> None:
    for number in range(8):
        path = job.folder.output / "text"
        path.write_bytes(f"{number}".encode())
        os.truncate(path, MAX_TEXT_BYTES)
        key = hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(job.folder.functions(key))
        job.missing.add(key)
    offered = job._offered()
    assert sum(len(functions.text) for functions in offered) == MAX_WAITING_BYTES


def test_a_text_without_room_keeps_no_other_out(cache: ObjectCache) -> None:
    small, large = Functions(SCOPE, KEY, b"small"), Functions(SCOPE, OTHER, bytes(MAX_WAITING_BYTES + 1))
    cache.offer([large, small])
    assert list(cache._waiting.values()) == [small]


def test_a_text_that_cannot_be_compiled_leaves_the_cache_as_it_was(rig: Rig, tmp_path: Path) -> None:
    files = ObjectFiles(tmp_path / "objects", limit_bytes=1 << 20)
    cache = ObjectCache(files, WorkerMetrics())

    async def fill() -> None:
        cache.offer([Functions(SCOPE, KEY, b'{"target": "x", "functions": {"f": "y"}}')])
        filling = asyncio.ensure_future(cache.fill(rig.supervisor()._runner))
        try:
            await asyncio.to_thread(wait_until, lambda: not cache._waiting)
        finally:
            filling.cancel()

    rig.runner.run(fill())
    assert files.get(SCOPE, KEY) is None


def added(value: float) -> Functions:
    """A function that can be compiled."""
    x = te.placeholder((8,), "float32", "x")
    function = te.create_prim_func([x, te.compute((8,), lambda at: x[at] + value)])
    text = text_of({"f": function}, TARGET)
    return Functions(SCOPE, key_of(text), text)


async def emptied(cache: ObjectCache, runner: JobRunner) -> None:
    """Fill the cache until nothing waits."""
    filling = asyncio.ensure_future(cache.fill(runner))
    try:
        await asyncio.to_thread(wait_until, lambda: not cache._waiting)
    finally:
        filling.cancel()


@pytest.mark.parametrize(("slow_seconds", "kept"), [(60.0, 2), (0.0, 1)])
def test_after_a_slow_object_the_others_of_the_tenant_are_dropped(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_seconds: float, kept: int
) -> None:
    monkeypatch.setattr(object_cache, "SLOW_SECONDS", slow_seconds)
    files = ObjectFiles(tmp_path / "objects", limit_bytes=1 << 20)
    cache, offered = ObjectCache(files, WorkerMetrics()), [added(1.0), added(2.0)]
    cache.offer(offered)
    rig.runner.run(emptied(cache, rig.supervisor()._runner))
    assert sum(files.get(SCOPE, functions.key) is not None for functions in offered) == kept


def test_other_jobs_measure_while_the_zygote_starts(
    rig: Rig, cache: ObjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, could_measure = rig.supervisor()._runner, []

    async def start() -> None:
        limits = replace(runner.settings.turn_limits(), patience_seconds=0.5)
        async with held_turn(limits) as is_held:
            could_measure.append(is_held)
        raise ZygoteLostError("it did not start")

    monkeypatch.setattr(rig.zygote, "ensure_running", start)
    cache.offer([Functions(SCOPE, KEY, b"{}")])
    rig.runner.run(emptied(cache, runner))
    assert could_measure == [True]
