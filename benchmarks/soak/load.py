"""A stream of small jobs from persistent users, and the outcome of each."""

import contextlib
import io
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch

from benchmarks.soak.requests import Followed, RequestKind
from bessemer import BenchmarkOptions, Client, Stage, TuneOptions
from bessemer.client import Job
from bessemer.contract.base import now
from bessemer.contract.invocation import MAX_RUNS
from bessemer.contract.job import Event, EventType, JobState
from bessemer.contract.problem import ErrorCode
from bessemer.errors import (
    CompilationCancelledError,
    CompilationFailedError,
    ConflictError,
    ModelRejectedError,
    ServerFailedError,
    UnreachableError,
)
from examples.models.mlp import Mlp

USERS = 4
TRIALS = 24
BENCHMARK_SECONDS = 0.2
NEW_MODEL = 0.2
LONGEST_STAGE_SECONDS = 2.0
OUTAGE_SECONDS = 600.0
INVOCATIONS = 5
IMAGE = np.ones((1, 784), np.float32)

Result = TypeVar("Result")


WEIGHTS = {
    RequestKind.COMPILE: 3,
    RequestKind.TUNE: 3,
    RequestKind.PREFLIGHT: 2,
    RequestKind.CANCEL: 2,
    RequestKind.INVOKE: 3,
}


@dataclass
class Harvest:
    """The observations of all users."""

    followed: list[Followed] = field(default_factory=list)
    invoked: list[str] = field(default_factory=list)
    rejected: list[ErrorCode] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


class Users:
    """Users who each submit a job when the previous one has ended."""

    def __init__(self, url: str, seed: int, kinds: Sequence[RequestKind] = tuple(RequestKind)) -> None:
        self.harvest = Harvest()
        self._url = url
        self._kinds = kinds
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._use, args=(random.Random(f"{seed}-{number}"),), name=f"user-{number}"
            )
            for number in range(USERS)
        ]
        self._models = Models(seed)

    def start(self) -> None:
        """Start submitting."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop submitting, and follow submitted jobs to their end."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _use(self, dice: random.Random) -> None:
        with Client(self._url) as client:
            while not self._stopping.is_set():
                try:
                    self._submit(client, dice)
                except ModelRejectedError as error:
                    self.harvest.rejected.append(error.problem.code)
                except Exception as error:
                    self.harvest.troubles.append(f"{type(error).__name__}: {error}")

    def _submit(self, client: Client, dice: random.Random) -> None:
        (wish,) = dice.choices(self._kinds, [WEIGHTS[kind] for kind in self._kinds])
        model = self._models.one(dice)
        job = outlasting(lambda: _post(client, model, wish))
        ran, asked_at = wish is RequestKind.CANCEL and _cancel(job, dice), now()
        followed = _follow(job, wish)
        if ran and followed.failure is ErrorCode.CANCELLED:
            seconds = (followed.events[-1].at - asked_at).total_seconds()
            followed = replace(followed, cancel_seconds=max(0.0, seconds))
        self.harvest.followed.append(followed)
        if wish is RequestKind.INVOKE:
            for _ in range(INVOCATIONS):
                self.harvest.invoked.append(_invoke(job))


class Models:
    """Multi-layer perceptrons, sometimes a new one that must be uploaded and inspected."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._lock = threading.Lock()
        self._program = torch.export.export(Mlp(), (torch.zeros(1, 784),))
        self._known = [self._save()]

    def one(self, dice: random.Random) -> bytes:
        """Return a model's bytes."""
        with self._lock:
            if dice.random() < NEW_MODEL:
                self._known.append(self._save())
            return dice.choice(self._known)

    def _save(self) -> bytes:
        for weights in self._program.state_dict.values():
            weights.data.normal_(std=0.05, generator=self._generator)
        file = io.BytesIO()
        torch.export.save(self._program, file)
        return file.getvalue()


def outlasting(action: Callable[[], Result]) -> Result:
    """Call an operation, and retry if the server was unreachable for longer than the client waits.

    Raises:
        UnreachableError, ServerFailedError: the server stayed unreachable.
    """
    deadline = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            return action()
        except (UnreachableError, ServerFailedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _post(client: Client, model: bytes, wish: RequestKind) -> Job:
    return client.submit(
        model,
        target="host",
        tune=TuneOptions(trials=TRIALS) if wish is RequestKind.TUNE else None,
        benchmark=BenchmarkOptions(seconds=BENCHMARK_SECONDS),
        stop_after=Stage.TRANSLATE if wish is RequestKind.PREFLIGHT else None,
        cache=False,
    )


def _invoke(job: Job) -> str:
    """Run a compiled library the maximum number of times; return the invocation's id.

    Raises:
        InvocationFailedError, InvocationCancelledError: the invocation did not succeed.
    """
    asked = outlasting(lambda: job.submit_invocation({"x": IMAGE}, MAX_RUNS))
    return outlasting(lambda: job.wait_for_invocation(asked)).id


def _cancel(job: Job, dice: random.Random) -> bool:
    """Cancel a job, half of the time during a stage; return whether it was running."""
    if dice.random() < 0.5:
        outlasting(lambda: _wait_for_stage(job))
        time.sleep(dice.uniform(0, LONGEST_STAGE_SECONDS))
    with contextlib.suppress(ConflictError):  # it has ended already
        return outlasting(job.cancel).document.state is JobState.RUNNING
    return False


def _wait_for_stage(job: Job) -> None:
    for event in job.events():
        if event.type is EventType.STAGE_STARTED:
            return


def _follow(job: Job, wish: RequestKind) -> Followed:
    events: list[Event] = []

    def follow_on() -> None:
        for event in job.events(after=events[-1].seq if events else 0):
            events.append(event)

    outlasting(follow_on)
    failure = None
    try:
        outlasting(job.wait)
    except CompilationFailedError as error:
        failure = error.problem.code
    except CompilationCancelledError:
        failure = ErrorCode.CANCELLED
    return Followed(job.id, wish, tuple(events), failure)
