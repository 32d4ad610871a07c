"""Has devices do tasks: offers each, watches its lease, reads the result.

A task is a bundle to verify and measure, or the candidates of a search to time.

The device calls the app. This side and the app share only the rows of ``DeviceTasks``.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from bessemer.contract.device import Device, DeviceEntry, DeviceResult, DeviceTask
from bessemer.contract.job import EntryFigures, Figures, Progress
from bessemer.contract.problem import ErrorCode, Problem, make_problem
from bessemer.contract.report import DeviceEntryRun, DeviceRun, TuneVerdict
from bessemer.contract.stage import Stage
from bessemer.store.errors import FencedError, StoreUnavailableError
from bessemer.store.rows.device_tasks import DeviceTasks, DeviceTaskState, DeviceTaskStatus, Wanted
from bessemer.store.rows.jobs import Jobs
from bessemer.store.rows.lifecycle import Attempt
from worker.measure.statistics import latency
from worker.supervisor.retry import MAX_LOST_ATTEMPTS, StoreRetry

POLL_SECONDS = 0.25
HOLD_SECONDS = 900.0
STAGE = Stage.PACKAGE
WAITING = "waiting for"
QUIET_SECONDS = 2.0
"""A search offers batch after batch, and reports only a longer wait."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Offer:
    """A bundle for a device, or candidates.

    Attributes:
        job_id: the compilation.
        attempt: the attempt at it.
        task: what a device is to do.
        wanted: the devices that may do it.
        required: whether the compilation fails without a device, since this worker cannot run the bundle, or
            the request names a device.
        work_seconds: how long the task's programs may run altogether.
        preferred: a device that gets the task before others if it is live.
    """

    job_id: str
    attempt: Attempt
    task: DeviceTask
    wanted: Wanted
    required: bool
    work_seconds: float
    preferred: str | None = None

    @property
    def subject(self) -> str:
        """What the task is about, in words."""
        return "the bundle" if self.task.kind == "verify" else "the candidates"


@dataclass(frozen=True)
class Ended:
    """A task that a device has ended without a failure."""

    device: Device
    result: DeviceResult


class LeaseWatch:
    """Tells when a device is lost: its lease was not renewed within the lease's length, by this clock."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: object = None
        self._since = clock()

    def is_lost(self, status: DeviceTaskStatus) -> bool:
        """Whether the lease of a leased task has ended."""
        seen = (status.attempt, status.renewed_at)
        if seen != self._seen:
            self._seen, self._since = seen, self._clock()
        return self._clock() - self._since >= self._seconds


@dataclass
class DeviceWait:
    """What is known while a task waits or runs.

    Attributes:
        say: records in words what the compilation waits for; blocks.
        began: since when.
        lost: the names of the devices that were lost, in order.
        counted: how many of them had this task.
        unfit: what the devices said that could not run the programs.
        idle_since: since when no device that may do the task is live; None if one is.
        last: the device that had the task last.
        held: the attempt of the device that has the task, and since when.
        said: the last progress that was recorded.
    """

    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)
    lost: list[str] = field(default_factory=list)
    counted: int = 0
    unfit: list[str] = field(default_factory=list)
    idle_since: float | None = None
    last: str = ""
    held: tuple[int, float] = (0, 0.0)
    said: str = ""


class DeviceRunner:
    """Has devices do tasks for the compilations of one worker.

    Args:
        tasks: the rows of the tasks.
        jobs: the rows of the compilations.
        retry: how long to wait for the store.
        wait_seconds: how long a compilation waits while no device for it is live.
        hold_seconds: how long a device may have a task beyond the time of its program: to fetch the bundle.
    """

    def __init__(
        self,
        tasks: DeviceTasks,
        jobs: Jobs,
        retry: StoreRetry,
        wait_seconds: float,
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self._hold_seconds = hold_seconds
        self._tasks = tasks
        self._jobs = jobs
        self._retry = retry
        self._wait_seconds = wait_seconds

    async def run(self, offer: Offer) -> DeviceRun | Problem | None:
        """Have a device run a bundle.

        Returns:
            How it ran; a problem; or None if no device did it, and none is required.

        Raises:
            FencedError: another attempt at the compilation has begun.
            StoreUnavailableError: the store was unavailable for too long.
        """
        if not offer.required and not await self._retry.call(partial(self._tasks.fitting, offer.wanted)):
            return None
        result = await self._do(offer, DeviceWait(partial(self._say, offer)))
        if isinstance(result, Ended):
            return as_run(result.device, result.result)
        if not offer.required and result.code in WITHOUT_DEVICE:
            log.warning("verified without a device: %s", result.detail)
            return None
        return result

    async def time(self, offer: Offer, lost: list[str], say: Callable[[str], None]) -> Ended | Problem:
        """Have a device time candidates.

        Args:
            offer: the candidates.
            lost: the devices that the search has lost before; this call adds the ones that it loses.
            say: records in words what the search waits for; blocks.

        Raises:
            FencedError: another attempt at the compilation has begun.
            StoreUnavailableError: the store was unavailable for too long.
        """
        return await self._do(offer, DeviceWait(say, lost=lost))

    async def _do(self, offer: Offer, wait: DeviceWait) -> Ended | Problem:
        wanted = offer.wanted
        if offer.preferred is not None:
            preferred = replace(wanted, name=offer.preferred)
            live = await self._retry.call(partial(self._tasks.fitting, preferred))
            wanted = preferred if live else wanted
        await self._retry.call(partial(self._tasks.submit, offer.job_id, offer.attempt, offer.task, wanted))
        try:
            return await self._follow(offer, wait)
        finally:
            await asyncio.shield(self._withdraw(offer))

    async def _withdraw(self, offer: Offer) -> None:
        with contextlib.suppress(StoreUnavailableError):  # it is obsolete when the attempt has ended
            await asyncio.to_thread(self._tasks.withdraw, offer.task.id)

    async def _follow(self, offer: Offer, wait: DeviceWait) -> Ended | Problem:
        lease = LeaseWatch(self._tasks.lease_seconds)
        while True:
            status = await self._retry.call(partial(self._tasks.status, offer.task.id))
            if status is None:
                raise FencedError(offer.job_id, offer.attempt.number)
            if await self._retry.call(partial(self._jobs.cancel_requested, offer.job_id, offer.attempt)):
                return make_problem(
                    ErrorCode.CANCELLED, f"cancelled while a device was to run {offer.subject}"
                )
            result = await self._step(offer, status, wait, lease)
            if result is not None:
                return result
            await asyncio.sleep(POLL_SECONDS)

    async def _step(
        self, offer: Offer, status: DeviceTaskStatus, wait: DeviceWait, lease: LeaseWatch
    ) -> Ended | Problem | None:
        """Look once at the task; None if it goes on."""
        if status.lost_attempts > wait.counted:
            wait.counted += 1
            wait.lost.append(wait.last or "unknown")
        if len(wait.lost) >= MAX_LOST_ATTEMPTS:
            return _lost(wait.lost)
        match status.state:
            case DeviceTaskState.ENDED:
                return await self._end(offer, status, wait)
            case DeviceTaskState.LEASED:
                await self._watch(offer, status, wait, lease)
                return None
            case DeviceTaskState.QUEUED:
                return await self._await_device(offer, status, wait)

    async def _end(self, offer: Offer, status: DeviceTaskStatus, wait: DeviceWait) -> Ended | Problem | None:
        device, result = status.device, status.result
        assert device is not None
        assert result is not None
        if not result.failure:
            return Ended(device, result)
        if not result.unfit:
            detail = f"on device '{device.name}': {result.failure}"
            return make_problem(ErrorCode.VERIFY_CRASHED, detail, stage=STAGE)
        wait.unfit.append(f"'{device.name}': {result.failure}")
        await self._retry.call(partial(self._tasks.give_to_others, offer.task.id, device.name))
        return None

    async def _watch(
        self, offer: Offer, status: DeviceTaskStatus, wait: DeviceWait, lease: LeaseWatch
    ) -> None:
        assert status.device is not None
        wait.last, wait.idle_since = status.device.name, None
        await self._tell(wait, f"device '{wait.last}' runs {offer.subject}")
        if wait.held[0] != status.attempt:
            wait.held = (status.attempt, time.monotonic())
        held_seconds = time.monotonic() - wait.held[1]
        if lease.is_lost(status) or held_seconds > offer.work_seconds + self._hold_seconds:
            log.warning("device %s is lost; its task goes to another", wait.last)
            await self._retry.call(partial(self._tasks.take_back, offer.task.id, status.attempt))

    async def _await_device(self, offer: Offer, status: DeviceTaskStatus, wait: DeviceWait) -> Problem | None:
        live = await self._retry.call(partial(self._tasks.fitting, status.wanted))
        if live:
            wait.idle_since = None
            names = ", ".join(f"'{device.name}'" for device in live[:3])
            if offer.task.kind == "verify" or time.monotonic() - wait.began > QUIET_SECONDS:
                await self._tell(wait, f"{WAITING} device {names}{_again(wait)}")
            return None
        if status.wanted.name != offer.wanted.name:
            await self._retry.call(partial(self._tasks.open_to_all, offer.task.id))
            return None
        if wait.unfit:
            detail = f"no device could run {offer.subject}: {'; '.join(wait.unfit)}"
            return make_problem(ErrorCode.TARGET_NOT_RUNNABLE, detail, stage=STAGE)
        wait.idle_since = time.monotonic() if wait.idle_since is None else wait.idle_since
        missing = f"{_described(status.wanted)}, and none is live{_again(wait)}"
        if time.monotonic() - wait.idle_since >= self._wait_seconds:
            needs = "needs" if offer.task.kind == "verify" else "need"
            detail = f"{offer.subject} {needs} {missing}: waited {self._wait_seconds:g} s"
            return make_problem(ErrorCode.DEVICE_UNAVAILABLE, detail, stage=STAGE)
        ends = "fails" if offer.task.kind == "verify" else "the search ends"
        await self._tell(wait, f"{WAITING} {missing}; {ends} after {self._wait_seconds:g} s")
        return None

    async def _tell(self, wait: DeviceWait, text: str) -> None:
        """Record what the compilation waits for, once."""
        if text != wait.said:
            wait.said = text
            await self._retry.call(partial(wait.say, text))

    def _say(self, offer: Offer, text: str) -> None:
        progress = Progress(stage=STAGE, done=0, total=0, detail=text[:400])
        self._jobs.progress(offer.job_id, offer.attempt, progress)


WITHOUT_DEVICE = (ErrorCode.DEVICE_UNAVAILABLE, ErrorCode.DEVICE_LOST, ErrorCode.TARGET_NOT_RUNNABLE)
"""Problems of devices, which a bundle that was verified without one does not share."""


def _lost(names: list[str]) -> Problem:
    detail = f"{len(names)} attempts were lost with their devices ({', '.join(names)})"
    return make_problem(ErrorCode.DEVICE_LOST, detail, stage=STAGE)


def _again(wait: DeviceWait) -> str:
    return f" (lost before: {', '.join(wait.lost)})" if wait.lost else ""


def _described(wanted: Wanted) -> str:
    """The devices that may do a task, in words."""
    named = f"the device '{wanted.name}' of the platform" if wanted.name else "a device of the platform"
    features = f" with {', '.join(sorted(wanted.features))}" if wanted.features else ""
    kind = " of the kind that the search began on" if wanted.kind else ""
    return f"{named} {wanted.platform}{features}{kind}"


def as_run(device: Device, result: DeviceResult) -> DeviceRun:
    """How a bundle ran on a device. An emulated device's times and memory are left out."""
    return DeviceRun(
        name=device.name,
        platform=device.platform,
        processor=device.processor,
        cores=device.cores,
        libc=device.libc,
        emulated=device.emulated,
        threads=result.threads,
        peak_memory_bytes=None if device.emulated else result.peak_memory_bytes,
        entries=tuple(_entry_run(entry, device.emulated) for entry in result.entries),
    )


def _entry_run(entry: DeviceEntry, emulated: bool) -> DeviceEntryRun:
    timed = not emulated and entry.times_ms
    return DeviceEntryRun(
        name=entry.name,
        outputs=entry.outputs,
        open_ms=None if emulated else entry.open_ms,
        first_ms=None if emulated else entry.first_ms,
        latency=latency([ms / 1000 for ms in entry.times_ms]) if timed else None,
    )


def device_figures(run: DeviceRun, library_bytes: int, tune: TuneVerdict | None = None) -> Figures | None:
    """The figures of a library that only a device measured; None if it is emulated or timed nothing."""
    first = run.latency
    if first is None:
        return None
    others = ((entry.name, entry.latency) for entry in run.entries[1:])
    return Figures(
        latency=first,
        baselines=(),
        library_bytes=library_bytes,
        peak_memory_bytes=run.peak_memory_bytes or 0,
        max_absolute_error=run.max_absolute_error,
        entries=tuple(
            EntryFigures(name=name, latency=found, baselines=()) for name, found in others if found
        ),
        device=run.name,
        tune=tune,
    )
