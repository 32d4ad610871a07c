"""Finds lost jobs and leftovers from the rows, the artifact store and ``/proc``, not through the API."""

import hashlib
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import sqlalchemy as sa

from benchmarks.soak.requests import Followed, RequestKind
from benchmarks.soak.site import ABANDONED_UPLOAD_SECONDS, Site
from bessemer.contract.access import DEFAULT_TENANT
from bessemer.contract.invocation import Invocation
from bessemer.contract.job import Compilation, Event, EventType, JobState
from bessemer.store.blobs.object_stores import INCOMING
from bessemer.store.rows.tables import INVOCATIONS, JOBS
from bessemer.store.store import Store
from worker.settings import WorkerSettings
from worker.supervisor.processes import processes, user_of
from worker.supervisor.work_dir import USERS_PER_WORKER

SETTLE_SECONDS = 60.0
MOST_WORKERS = 16
"""The most workers of all services on this machine."""

_STEP_SECONDS = 0.5

ENDS = {
    RequestKind.COMPILE: {JobState.SUCCEEDED},
    RequestKind.TUNE: {JobState.SUCCEEDED},
    RequestKind.PREFLIGHT: {JobState.SUCCEEDED},
    RequestKind.CANCEL: {JobState.CANCELLED, JobState.SUCCEEDED},
    RequestKind.INVOKE: {JobState.SUCCEEDED},
}
"""A cancel may come too late. A job whose submission's answer was lost has no follower and must succeed."""


def lost_jobs(store: Store, followed: Sequence[Followed]) -> list[str]:
    """Find jobs with a wrong end, with gaps in their events, or with wrong artifacts."""
    seen = {one.job_id: one for one in followed}
    with store.database.read() as connection:
        ids = list(connection.execute(sa.select(JOBS.c.id)).scalars())
    faults = [fault for job_id in ids for fault in _faults(store, job_id, seen.get(job_id))]
    return faults + [f"{job_id}: its row is gone" for job_id in seen.keys() - set(ids)]


def lost_invocations(store: Store, seen: Sequence[str]) -> list[str]:
    """Find invocations that failed or have wrong outputs, including those without a follower."""
    with store.database.read() as connection:
        ids = list(connection.execute(sa.select(INVOCATIONS.c.id)).scalars())
    faults = [fault for invocation_id in ids for fault in _invocation_faults(store, invocation_id)]
    return faults + [f"invocation {invocation_id}: its row is gone" for invocation_id in set(seen) - set(ids)]


def _invocation_faults(store: Store, invocation_id: str) -> list[str]:
    invocation = store.for_tenant(DEFAULT_TENANT).invocations.get(invocation_id)
    assert invocation is not None
    found = invocation_faults(invocation)
    if invocation.artifact is not None and (fault := _blob_fault(store, invocation.artifact.digest)):
        found.append(fault)
    return [f"invocation {invocation_id}: {fault}" for fault in found]


def invocation_faults(invocation: Invocation) -> list[str]:
    """List what is wrong with an invocation's end."""
    if invocation.state is not JobState.SUCCEEDED:
        return [
            f"ended {invocation.state}: {invocation.problem.code if invocation.problem else 'no problem'}"
        ]
    return [] if invocation.artifact is not None else ["has no outputs"]


def _faults(store: Store, job_id: str, seen: Followed | None) -> list[str]:
    jobs = store.for_tenant(DEFAULT_TENANT).jobs
    job = jobs.get(job_id)
    assert job is not None
    kept = jobs.events_after(job_id, 0, limit=1_000_000)
    found = [*end_faults(job, seen.wish if seen else RequestKind.COMPILE), *event_faults(kept, job.state)]
    if seen is not None and seen.events != kept:
        found.append("its user saw other events")
    found += [fault for artifact in job.artifacts if (fault := _blob_fault(store, artifact.digest))]
    return [f"{job_id}: {fault}" for fault in found]


def end_faults(job: Compilation, wish: RequestKind) -> list[str]:
    """List what is wrong with a job's end."""
    if job.state in ENDS[wish]:
        return []
    return [f"{wish} ended {job.state}: {job.problem.code if job.problem else 'no problem'}"]


def event_faults(events: Sequence[Event], state: JobState) -> list[str]:
    """Find gaps and repeats in a job's events."""
    found = []
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        found.append("its events have gaps or repeats")
    if [event.type for event in events if event.type.final] != [EventType(state)] or not events[
        -1
    ].type.final:
        found.append(f"its last event is not {state}")
    attempts = [event.data["attempt"] for event in events if event.type is EventType.STARTED]
    if attempts != list(range(1, len(attempts) + 1)):
        found.append(f"its attempts are {attempts}")
    for attempt in _by_attempt(events):
        found += _stage_faults(attempt)
    return found


def _by_attempt(events: Sequence[Event]) -> list[list[Event]]:
    starts = [index for index, event in enumerate(events) if event.type is EventType.STARTED]
    return [list(events[begin:end]) for begin, end in pairwise([*starts, len(events)])]


def _stage_faults(attempt: Sequence[Event]) -> list[str]:
    """Check that within an attempt each stage starts once, and ends before the next starts."""
    stages = [
        (event.type, event.data["stage"])
        for event in attempt
        if event.type in (EventType.STAGE_STARTED, EventType.STAGE_FINISHED)
    ]
    begun = [stage for kind, stage in stages if kind is EventType.STAGE_STARTED]
    expected = [
        move
        for stage in begun
        for move in ((EventType.STAGE_STARTED, stage), (EventType.STAGE_FINISHED, stage))
    ]
    if len(begun) == len(set(begun)) and stages in (expected, expected[:-1]):
        return []
    return [f"the stages of an attempt are out of order: {[stage for _, stage in stages]}"]


def _blob_fault(store: Store, digest: str) -> str | None:
    try:
        for _ in store.for_tenant(DEFAULT_TENANT).artifacts.stream(digest):
            pass
    except Exception as error:
        return f"an artifact is wrong: {error}"
    return None


def left_while_running(site: Site) -> list[str]:
    """Find leftovers beside idle workers: processes and folders of jobs, uploads, partial artifacts."""
    return _once_settled(lambda: _job_processes() + _job_folders(site.work), SETTLE_SECONDS) + _once_settled(
        lambda: _half_written(site.settings.folder / "artifacts"), 3 * ABANDONED_UPLOAD_SECONDS
    )


def left_after(site: Site, zygotes: Sequence[tuple[int, int]]) -> list[str]:
    """Find processes of jobs and zygotes that outlive the service."""
    return _once_settled(
        lambda: _job_processes() + _job_folders(site.work) + _still_running(zygotes), SETTLE_SECONDS
    )


def _once_settled(look: Callable[[], list[str]], seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(_STEP_SECONDS)
    return found


def _job_processes() -> list[str]:
    """Processes of the users that workers assign to jobs."""
    base = WorkerSettings().slot_uid_base
    users = range(base, base + MOST_WORKERS * USERS_PER_WORKER)
    return [
        f"process {process.pid} of user {user}"
        for process in processes()
        if (user := user_of(process.pid)) is not None and user in users
    ]


def _job_folders(work: Path) -> list[str]:
    return [f"folder {folder}" for folder in work.glob("*/jobs/*")]


def _half_written(artifacts: Path) -> list[str]:
    """Find partial uploads, and blobs that don't match their digests."""
    incoming = [f"upload {path}" for path in (artifacts / INCOMING).glob("*")]
    blobs = (path for path in artifacts.rglob("*") if path.is_file() and path.parent.name != INCOMING)
    return incoming + [f"artifact {path}" for path in blobs if _sha256(path) != path.name]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _still_running(wanted: Sequence[tuple[int, int]]) -> list[str]:
    running = {(process.pid, process.start_ticks) for process in processes() if not process.zombie}
    return [f"zygote {pid}" for pid, start_ticks in wanted if (pid, start_ticks) in running]
