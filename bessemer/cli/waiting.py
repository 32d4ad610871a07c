"""Reports what a job waits for, and limits how long it may wait for a worker."""

import time
from dataclasses import dataclass, field

from rich.console import Console

from bessemer.cli.output import tell
from bessemer.client import Client
from bessemer.contract.queue import QueuePlace
from bessemer.errors import BessemerError

__all__ = ["NotTakenError", "QueueLimit", "tell_missing_worker"]


class NotTakenError(BessemerError):
    """No worker took the compilation, or can take it."""


@dataclass(frozen=True)
class QueueLimit:
    """How long a compilation may wait for a worker.

    Attributes:
        seconds: how long any worker may take to accept it. With None it waits for a busy worker without
            limit, and fails at once if no live worker can take it.
        began: by the monotonic clock.
    """

    seconds: float | None
    began: float = field(default_factory=time.monotonic)

    def check(self, place: QueuePlace) -> None:
        """Look at the compilation's place in the queue.

        Raises:
            NotTakenError: it has waited long enough, or no live worker can take it.
        """
        if self.seconds is None:
            if place.waiting_for is not None:
                raise NotTakenError(
                    f"no live worker can take this compilation: it waits for {place.waiting_for}\n"
                    "→ Start such a worker or ask for another --target; `bessemer workers` lists those that "
                    "are alive. Where workers start on demand, wait for one with --queue-timeout."
                )
            return
        if time.monotonic() - self.began >= self.seconds:
            turn = f"it is number {place.position} in the queue; workers that can take it: {place.workers}"
            missing = f"it waits for {place.waiting_for}" if place.waiting_for else turn
            raise NotTakenError(
                f"no worker took this compilation within {self.seconds:g} s: {missing}\n"
                "→ Give it a longer --queue-timeout, or start more workers."
            )


def tell_missing_worker(client: Client, console: Console) -> None:
    """Say so where no worker lives: what was asked for waits until one comes."""
    if not client.workers().items:
        tell(console, "queued, waiting for a live worker")
