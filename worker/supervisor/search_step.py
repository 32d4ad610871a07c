"""Times the candidates of a search on devices: what a running job asks for, and what it is told."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from functools import partial

from bessemer.contract.device import Device, DeviceCandidate, DeviceTask
from bessemer.contract.job import Compilation
from bessemer.contract.problem import Problem
from bessemer.contract.report import SearchDevice
from bessemer.contract.target import cores_of
from bessemer.store.rows.device_tasks import Wanted, new_task_id
from bessemer.store.rows.lifecycle import Attempt
from worker.job.folder import JobFolder
from worker.protocol.messages import CANDIDATES_ARCHIVE, CandidatesBuilt
from worker.protocol.order import CandidatesTimed, TimedCandidate
from worker.supervisor.collect import store_output
from worker.supervisor.device_runs import Offer
from worker.supervisor.job_record import CompilationRecord
from worker.supervisor.job_runner import JobRunner

MAX_ERROR_CHARACTERS = 400


@dataclass
class SearchOnDevices:
    """The batches of candidates of one attempt at a compilation.

    Attributes:
        lost: the devices that were lost, in order.
        last: the device that timed the last batch.
        stored_bytes: the size of all batches so far.
    """

    runner: JobRunner
    row: Compilation
    attempt: Attempt
    folder: JobFolder
    record: CompilationRecord
    lost: list[str] = field(default_factory=list)
    last: str | None = None
    stored_bytes: int = 0

    async def time(self, built: CandidatesBuilt) -> CandidatesTimed:
        """Have a device time a batch. The search goes on with the device that timed the last one.

        Raises:
            MisbehavedError: the job has not written an archive of candidates, or all of its archives together
                exceed the limit on its disk.
            FencedError: another attempt at the compilation has begun.
            StoreUnavailableError: the store was unavailable for too long.
        """
        runner = self.runner
        artifacts = runner.store.artifacts.for_tenant(self.attempt.tenant)
        limit_bytes = runner.settings.limit_disk_bytes
        left_bytes = limit_bytes - self.stored_bytes
        store = partial(store_output, self.folder.path, CANDIDATES_ARCHIVE, artifacts, left_bytes)
        blob = await runner.store_retry.call(store)
        self.stored_bytes += blob.size_bytes
        task = DeviceTask(
            id=new_task_id(),
            kind="measure",
            digest=blob.digest,
            threads=cores_of(self.row.request.target),
            rounds=built.rounds,
            repeat=built.repeat,
            repeat_seconds=built.repeat_seconds,
            timeout_seconds=built.timeout_seconds,
            memory_bytes=runner.settings.limit_memory_bytes,
            disk_bytes=limit_bytes,
        )
        wanted = Wanted(
            self.attempt.tenant,
            built.platform,
            self.row.request.device,
            frozenset(built.device_features),
            measures=True,
        )
        # each candidate may hang once, and is not run again
        work_seconds = built.count * built.timeout_seconds * built.rounds
        offer = Offer(self.row.id, self.attempt, task, wanted, True, work_seconds, self.last)
        ended = await runner.devices.time(offer, self.lost, self.record.waits)
        if isinstance(ended, Problem):
            return CandidatesTimed(device=None, reason=ended.detail)
        self.last = ended.device.name
        found = ended.result.candidates
        if len(found) != built.count:
            reason = f"device '{self.last}' timed {len(found)} of {built.count} candidates"
            return CandidatesTimed(device=None, reason=reason)
        timed = tuple(as_timed(candidate, built.rounds) for candidate in found)
        return CandidatesTimed(device=as_search_device(ended.device), candidates=timed)


def as_search_device(device: Device) -> SearchDevice:
    """What the report says of a device."""
    return SearchDevice(
        name=device.name,
        platform=device.platform,
        processor=device.processor,
        emulated=device.emulated,
    )


def as_timed(candidate: DeviceCandidate, rounds: int) -> TimedCandidate:
    """The median of each round, in seconds, or the start of the error.

    A device is not trusted to send as many rounds as were asked for, or times above zero.
    """
    seconds = tuple(statistics.median(times) / 1e3 for times in candidate.rounds_ms)
    if candidate.failure:
        return TimedCandidate(error=candidate.failure[:MAX_ERROR_CHARACTERS])
    if len(seconds) != rounds or min(seconds) <= 0:
        return TimedCandidate(error=f"the device did not send positive times for all {rounds} rounds")
    return TimedCandidate(seconds=seconds)
