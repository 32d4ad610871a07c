"""The service itself: readiness, workers, targets."""

from datetime import datetime

from bessemer.contract.base import Document
from bessemer.contract.sandbox import SandboxStatus
from bessemer.contract.target import Preset


class Worker(Document):
    """A worker that is alive."""

    id: str
    host: str
    processor: str
    mcpu: str
    cores: int
    versions: dict[str, str]
    sandbox: SandboxStatus
    seen_at: datetime


class Readiness(Document):
    """``ready`` says that requests are taken; without a live worker they wait.

    ``database`` and ``store`` say whether each can be reached; where one cannot, the status is 503.
    """

    ready: bool
    database: bool
    store: bool
    workers: tuple[Worker, ...]
    warnings: tuple[str, ...] = ()


class TargetList(Document):
    """The presets that a request may name."""

    items: tuple[Preset, ...]
