"""The step after a bundle's check: a device runs the bundle, and a child notes what it found."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from platform import machine

from bessemer.bundle.manifest import ARCHIVE, LIBRARY
from bessemer.contract.access import Tenant
from bessemer.contract.base import Digest
from bessemer.contract.capability import code_feature, platform_of_target
from bessemer.contract.device import MAX_TIMES, DeviceTask
from bessemer.contract.job import Compilation
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.report import DeviceRun
from bessemer.contract.target import HOST, cores_of, resolve_target
from bessemer.contract.triple import platform_of
from bessemer.store.blobs.hashing import BlobKey
from bessemer.store.rows.device_tasks import Wanted, new_task_id
from bessemer.store.rows.lifecycle import Attempt
from bessemer.store.store import Store
from worker.errors import MisbehavedError
from worker.job.folder import JobFolder
from worker.protocol.messages import Amended, Checked, Compiled
from worker.protocol.order import AmendWork
from worker.settings import WorkerSettings
from worker.supervisor.collect import collect_file, replace_files, size_of
from worker.supervisor.device_runs import Offer, device_figures
from worker.supervisor.job_record import CheckRecord
from worker.supervisor.job_runner import JobRunner
from worker.supervisor.outcome import as_problem, conclude

OWN_PLATFORM = platform_of(f"{machine()}-unknown-linux-gnu")


@dataclass(frozen=True)
class DeviceStep:
    """A compilation after this step; ``amended`` has the digests of its files if these changed."""

    compiled: Compiled
    amended: Mapping[str, Digest]


def may_use_device(row: Compilation, tenant: Tenant, store: Store) -> bool:
    """Whether a device verifies the bundle if this worker cannot run it. Blocks."""
    needs = row.request.needs
    if needs is None or not (needs.runs and row.request.makes_bundle):
        return False
    return row.request.device is not None or needs.platform in store.device_tasks.live_platforms().of(tenant)


def searches_on_device(row: Compilation, tenant: Tenant, store: Store) -> bool:
    """Whether a device measures the candidates of a search. Blocks.

    It does if the request names it, or if this worker cannot load the code of the target's platform and a
    device of that platform is live. An emulated one must be named: its times say nothing about the hardware.
    """
    request, needs = row.request, row.request.needs
    if not (request.is_verified and request.makes_bundle):
        return False
    if request.device is not None:
        return True
    if needs is None or needs.platform == OWN_PLATFORM:
        return False
    of_gpu = frozenset((code_feature(needs.gpus),) if needs.gpus else ())
    return bool(store.device_tasks.fitting(Wanted(tenant, needs.platform, None, of_gpu, measures=True)))


async def run_on_device(
    runner: JobRunner,
    slot: int,
    row: Compilation,
    attempt: Attempt,
    folder: JobFolder,
    compiled: Compiled,
    checked: Checked,
) -> DeviceStep | Problem:
    """Have a device run the bundle in ``folder``, if one is there or needed.

    Returns:
        The compilation, with the device's figures; the files in ``folder`` have its findings. Or a problem.
    """
    if checked.check is not None and compiled.left_to_device:
        detail = "the job left the verification to a device although this worker can run the library"
        return make_problem(ErrorCode.CHILD_MISBEHAVED, detail)
    is_needed = checked.check is None or row.request.device is not None
    if not is_needed and _platform(row) == OWN_PLATFORM:
        return DeviceStep(compiled, {})
    artifacts = runner.store.artifacts.for_tenant(attempt.tenant)
    store = partial(collect_file, folder.path, ARCHIVE, artifacts, runner.settings.limit_disk_bytes)
    try:
        bundle = (await runner.store_retry.call(store)).digest
    except MisbehavedError as error:
        return error.problem(None)
    run = await runner.devices.run(_offer(row, attempt, compiled, bundle, runner.settings, is_needed))
    if not isinstance(run, DeviceRun):
        return DeviceStep(compiled, {}) if run is None else run
    amended = await _amend(runner, slot, row, attempt, folder, bundle, run)
    if isinstance(amended, Problem):
        return amended
    figures = compiled.figures or device_figures(run, size_of(folder.path, LIBRARY), compiled.tune)
    return DeviceStep(compiled.model_copy(update={"verified": True, "figures": figures}), amended)


def _platform(row: Compilation) -> str:
    return platform_of_target(resolve_target(row.request.target, HOST, 1))


def _offer(
    row: Compilation,
    attempt: Attempt,
    compiled: Compiled,
    bundle: Digest,
    settings: WorkerSettings,
    required: bool,
) -> Offer:
    task = DeviceTask(
        id=new_task_id(),
        digest=bundle,
        threads=cores_of(row.request.target),
        repeat=MAX_TIMES,
        repeat_seconds=row.request.benchmark.seconds,
        timeout_seconds=settings.limit_invoke_seconds,
        memory_bytes=settings.limit_memory_bytes,
        disk_bytes=settings.limit_disk_bytes,
    )
    features = frozenset(compiled.device_features)
    wanted = Wanted(attempt.tenant, _platform(row), row.request.device, features)
    return Offer(row.id, attempt, task, wanted, required, work_seconds=task.timeout_seconds)


async def _amend(
    runner: JobRunner,
    slot: int,
    row: Compilation,
    attempt: Attempt,
    folder: JobFolder,
    bundle: Digest,
    run: DeviceRun,
) -> Mapping[str, Digest] | Problem:
    """Have a fresh child write the findings into the bundle, and move its files over the earlier ones.

    Returns:
        The digests of all files of the bundle.
    """
    name, record = f"amend-{row.id}", CheckRecord(runner.store.jobs, row.id, attempt)
    async with runner.folder(name, slot) as fresh:
        await runner.fetch(BlobKey(attempt.tenant, bundle), fresh.model, slot)
        work = AmendWork(model=row.request.model, run=run)
        outcome = await runner.run(name, slot, fresh, work, record, runner.settings.limit_invoke_seconds)
        result = conclude(outcome)
        if not isinstance(result, Amended):
            return as_problem(result)
        try:
            replace_files(folder.path, result.files, fresh.path)
        except MisbehavedError as error:
            return error.problem(None)
    return record.files
