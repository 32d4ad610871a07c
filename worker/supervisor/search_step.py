"""Times the candidates of a search on devices: what a running job asks for, and the answer.

Devices of one kind share a round: each downloads the same archive and runs its part of it.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from bessemer.contract.base import Digest
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
from worker.supervisor.device_runs import WAITING, Ended, Offer
from worker.supervisor.job_record import CompilationRecord
from worker.supervisor.job_runner import JobRunner

MAX_ERROR_CHARACTERS = 400


@dataclass
class SearchOnDevices:
    """The batches of candidates of one attempt at a compilation.

    Attributes:
        lost: the devices that were lost, in order.
        last: the first device that timed the last batch; only devices of its kind time further ones.
        stored_bytes: the size of all batches so far.
    """

    runner: JobRunner
    row: Compilation
    attempt: Attempt
    folder: JobFolder
    record: CompilationRecord
    lost: list[str] = field(default_factory=list)
    last: Device | None = None
    stored_bytes: int = 0

    async def time(self, built: CandidatesBuilt) -> CandidatesTimed:
        """Have devices time a batch. All batches of a search are timed by devices of one kind.

        Raises:
            MisbehavedError: the job has not written an archive of candidates, or all of its archives together
                exceed the limit on its disk.
            FencedError: another attempt at the compilation has begun.
            StoreUnavailableError: the store was unavailable for too long.
        """
        runner = self.runner
        artifacts = runner.store.artifacts.for_tenant(self.attempt.tenant)
        left_bytes = runner.settings.limit_disk_bytes - self.stored_bytes
        store = partial(store_output, self.folder.path, CANDIDATES_ARCHIVE, artifacts, left_bytes)
        blob = await runner.store_retry.call(store)
        self.stored_bytes += blob.size_bytes
        wanted = Wanted(
            self.attempt.tenant,
            built.platform,
            self.row.request.device,
            frozenset(built.device_features),
            measures=True,
            kind=None if self.last is None else self.last.kind,
        )
        live = await runner.store_retry.call(partial(runner.store.device_tasks.fitting, wanted))
        shares = shares_of(built.count, devices_of(live, self.last, built.together))
        if len(shares) > 1:
            wanted = replace(wanted, kind=next(each.kind for each in live if each.name == shares[0].device))
            names = ", ".join(f"'{share.device}'" for share in shares)
            text = f"devices {names} run the candidates"
            await runner.store_retry.call(partial(self.record.waits, text))
        say = self.record.waits if len(shares) == 1 else self._say_waiting
        offers = [self._offer(built, blob.digest, wanted, share) for share in shares]
        running = [asyncio.ensure_future(runner.devices.time(offer, self.lost, say)) for offer in offers]
        try:
            ended = await asyncio.gather(*running)
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return self._timed(built, shares, ended)

    def _say_waiting(self, text: str) -> None:
        """Record that the search waits for one of several devices; blocks."""
        if text.startswith(WAITING):
            self.record.waits(text)

    def _offer(self, built: CandidatesBuilt, digest: Digest, wanted: Wanted, share: Share) -> Offer:
        settings = self.runner.settings
        task = DeviceTask(
            id=new_task_id(),
            kind="measure",
            digest=digest,
            threads=cores_of(self.row.request.target),
            first=share.first,
            count=share.count,
            rounds=built.rounds,
            repeat=built.repeat,
            repeat_seconds=built.repeat_seconds,
            timeout_seconds=built.timeout_seconds,
            memory_bytes=settings.limit_memory_bytes,
            disk_bytes=settings.limit_disk_bytes,
        )
        # each candidate may hang once, and is not run again
        work_seconds = share.count * built.timeout_seconds * built.rounds
        return Offer(self.row.id, self.attempt, task, wanted, True, work_seconds, share.device)

    def _timed(
        self, built: CandidatesBuilt, shares: Sequence[Share], ended: Sequence[Ended | Problem]
    ) -> CandidatesTimed:
        """What all devices found, in the order of the candidates; none if one of the shares failed."""
        timed: list[TimedCandidate] = []
        devices: list[Device] = []
        for share, one in zip(shares, ended, strict=True):
            if isinstance(one, Problem):
                return CandidatesTimed(reason=one.detail)
            found, name = one.result.candidates, one.device.name
            if len(found) == built.count:  # a device of an earlier version runs all of them
                found = found[share.first : share.first + share.count]
            if len(found) != share.count:
                return CandidatesTimed(
                    reason=f"device '{name}' timed {len(found)} of {share.count} candidates"
                )
            timed += (as_timed(candidate, built.rounds) for candidate in found)
            devices.append(one.device)
        self.last = devices[0]
        return CandidatesTimed(devices=tuple(map(as_search_device, devices)), candidates=tuple(timed))


@dataclass(frozen=True)
class Share:
    """The candidates of a batch that one device times; any device may if none is named."""

    first: int
    count: int
    device: str | None


def devices_of(live: Sequence[Device], last: Device | None, together: bool) -> tuple[str | None, ...]:
    """The devices that time a batch: the idle ones of the most common kind, else a busy one of it.

    Args:
        live: the devices that may; of the search's kind, if it has timed a batch.
        last: one that timed the last batch.
        together: whether one device must time all candidates; it is the last one if that is live.

    Returns:
        Their names; None for any device that may appear.
    """
    kinds = Counter(device.kind for device in live)
    if not kinds:
        return (None,)
    kind = max(kinds, key=kinds.__getitem__)
    alike = [device for device in live if device.kind == kind]
    if last is not None:
        alike.sort(key=lambda device: device.name != last.name)
    idle = [device.name for device in alike if not device.busy]
    if together:
        is_live = last is not None and alike[0].name == last.name
        return (alike[0].name if is_live or not idle else idle[0],)
    return tuple(idle or [alike[0].name])


def shares_of(count: int, devices: Sequence[str | None]) -> tuple[Share, ...]:
    """Nearly equal parts of a batch, one for each device as far as there are candidates."""
    parts = min(count, len(devices))
    edges = [count * part // parts for part in range(parts + 1)]
    return tuple(
        Share(first, last - first, device)
        for (first, last), device in zip(pairwise(edges), devices, strict=False)
    )


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
