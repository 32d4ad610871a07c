"""Who looks on while a job runs, and writes nothing of it down: metrics, traces."""

from dataclasses import dataclass
from typing import Protocol

from worker.protocol.messages import Message
from worker.supervisor.usage import Usage


class Observer(Protocol):
    """Looks on at one job. Its methods neither block nor raise."""

    def heard(self, message: Message) -> None:
        """The child has said something, and it was written down."""

    def used(self, usage: Usage) -> None:
        """The watch has looked at the job."""


class Unobserved:
    """For probes: nobody looks on."""

    def heard(self, message: Message) -> None:
        """Nothing."""

    def used(self, usage: Usage) -> None:
        """Nothing."""


UNOBSERVED = Unobserved()


@dataclass(frozen=True)
class Observers:
    """Several that look on at one job."""

    each: tuple[Observer, ...]

    def heard(self, message: Message) -> None:
        """Tell each."""
        for observer in self.each:
            observer.heard(message)

    def used(self, usage: Usage) -> None:
        """Tell each."""
        for observer in self.each:
            observer.used(usage)
