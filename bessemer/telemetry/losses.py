"""What app and worker both count: workers that are lost, and attempts that came to nothing."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from bessemer.contract.queue import Loss, TaskKind
from bessemer.telemetry import metrics


class LossMetrics:
    """The losses that one program found."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._workers = metrics.WORKERS_LOST.counter(registry)
        self._attempts = metrics.ATTEMPTS_LOST.counter(registry)
        for kind in TaskKind:
            for why in Loss:
                self._attempts.labels(kind, why)

    def worker(self, in_hand: Iterable[TaskKind]) -> None:
        """Count a worker that was lost with these tasks in hand."""
        self._workers.inc()
        for kind in in_hand:
            self.attempt(kind, Loss.WORKER_LOST)

    def attempt(self, kind: TaskKind, why: Loss) -> None:
        """Count an attempt that came to nothing."""
        self._attempts.labels(kind, why).inc()
