"""Invocations of compiled libraries, as workers write them."""

from bessemer.contract.base import JobId
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import Problem
from bessemer.contract.report import Latency
from bessemer.contract.tensor import TensorSpec
from bessemer.store.rows.lifecycle import INVOCATION_LIFECYCLE, Attempt, CancellableRows


class Invocations(CancellableRows):
    """Invocations of all tenants: one row each, deleted with its compilation."""

    lifecycle = INVOCATION_LIFECYCLE

    def succeed(
        self,
        invocation_id: JobId,
        attempt: Attempt,
        threads: int,
        latency: Latency | None,
        outputs: tuple[TensorSpec, ...],
        artifact: Artifact,
    ) -> None:
        """End the invocation; its outputs are stored already."""
        values = {
            "threads": threads,
            "latency": latency.model_dump(mode="json") if latency else None,
            "outputs": [spec.model_dump(mode="json") for spec in outputs],
            "artifact": artifact.model_dump(mode="json"),
            "outputs_digest": artifact.digest,
            "outputs_bytes": artifact.size_bytes,
        }
        self._finish(invocation_id, attempt, JobState.SUCCEEDED.value, values)

    def fail(self, invocation_id: JobId, attempt: Attempt, problem: Problem) -> None:
        """End the invocation with a problem."""
        values = {"problem": problem.model_dump(mode="json")}
        self._finish(invocation_id, attempt, JobState.FAILED.value, values)
