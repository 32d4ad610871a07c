"""Groups: the compilations of one model for several targets, and how their results compare."""

from collections.abc import Collection, Sequence
from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Digest, Document, JobId
from bessemer.contract.job import Compilation, JobState
from bessemer.contract.names import Name
from bessemer.contract.options import Tolerance
from bessemer.contract.problem import Problem
from bessemer.contract.report import BaselineResult, Estimate, Execution, Latency
from bessemer.contract.stage import Stage
from bessemer.contract.target import CudaTarget, Target, target_name
from bessemer.contract.triple import LINUX_X86_64

OUTCOMES = {
    Execution.NATIVE: "verified natively",
    Execution.EMULATED: "verified under emulation",
    Execution.PROGRAM: "verified by its own program",
    Execution.DEVICE: "verified on a device",
}
"""How a library was verified, in words."""


class Group(Document):
    """The compilations of one request with several targets."""

    id: JobId = Field(description="A unique id. A compilation of the group has it as `group`.")
    name: Name | None = Field(description="The name of its compilations; null if they have none.")
    model: Digest = Field(description="The SHA-256 of the uploaded model.")
    state: JobState = Field(
        description="`queued` until a worker takes the first compilation, `running` until the last one has "
        "ended. Then `failed` if one failed, or else `cancelled` if one was cancelled, or else `succeeded`."
    )
    created_at: datetime = Field(description="When it was submitted.")
    items: tuple[Compilation, ...] = Field(
        description="Its compilations, in the order of the request's targets. Each is queued, retried, "
        "cancelled and deleted on its own."
    )


class TargetResult(Document):
    """The result for one target of a group."""

    id: JobId = Field(description="The id of the compilation.")
    target: str = Field(description="The requested target, such as `aarch64`, or `znver4, 4 cores`.")
    state: JobState = Field(description="The state of the compilation.")
    cached: bool = Field(
        default=False, description="Whether an earlier compilation of an identical request answered it."
    )
    stage: Stage | None = Field(description="The running or last stage; null before the first.")
    problem: Problem | None = Field(description="Why it failed; null unless it failed.")
    verified: bool | None = Field(
        description="As in the compilation: true if every output is within its tolerance, false if the "
        "request asks for no verification, null before the compilation succeeds."
    )
    execution: Execution | None = Field(
        description="How the library ran to be verified, as in the report. Only `native` libraries are "
        "measured. Null before the compilation succeeds, and if it stopped before `verify`."
    )
    processor: str | None = Field(
        description="The processor of the worker that verified and measured it; null unless it was verified."
    )
    threads: int | None = Field(description="Number of threads of the measurement; null if not measured.")
    latency: Latency | None = Field(
        description="Latency of the library on the reference inputs; null if it was not measured."
    )
    estimate: Estimate | None = Field(
        default=None,
        description="As in the report: what one run takes at least, computed from the code; null if unknown.",
    )
    unsteady: str = Field(description="Why the latency is unreliable; empty if it is reliable.")
    peer: BaselineResult | None = Field(
        description="The fastest baseline on the same inputs; null if none was measured."
    )
    library_bytes: int | None = Field(description="Size of `model.so`; null if there is none.")
    bundle_bytes: int | None = Field(description="Size of the bundle; null if there is none.")
    max_absolute_error: float | None = Field(
        description="The largest difference from the model over all elements of all outputs; null before "
        "`verify`, and if it is not finite."
    )
    tolerance: Tolerance | None = Field(
        description="The tolerance of the output whose error is closest to its bound; null before `verify`."
    )
    error_share: float | None = Field(
        description="That output's error as a share of its bound: 1 is the most that verification allows. "
        "Null before `verify`, and if it is not finite."
    )
    seconds: float | None = Field(
        description="From the first start on a worker to the end; null while it has not both started and "
        "ended."
    )

    @property
    def outcome(self) -> str:
        """The result of the compilation in words."""
        if self.state is JobState.SUCCEEDED and self.bundle_bytes is None:
            return f"stopped after {self.stage}"
        if self.state is JobState.SUCCEEDED:
            known = None if self.execution is None else OUTCOMES.get(self.execution)
            how = known or "verified" if self.verified else "not verified"
            return how if self.latency is not None else f"{how}, not measured"
        if self.problem is not None:
            where = f" in {self.problem.stage}" if self.problem.stage else ""
            return f"failed{where}: {self.problem.code}"
        return f"running: {self.stage}" if self.stage and not self.state.final else self.state.value


class Comparison(Document):
    """The results of a group, target by target."""

    group: JobId = Field(description="The id of the group.")
    name: Name | None = Field(description="The name of its compilations; null if they have none.")
    model: Digest = Field(description="The SHA-256 of the uploaded model.")
    state: JobState = Field(description="As in the group.")
    created_at: datetime = Field(description="When it was submitted.")
    same_reference: bool | None = Field(
        description="Whether all libraries were verified with the same inputs and outputs of the model, bit "
        "by bit. Outputs can differ if workers have different processors. Null with fewer than two libraries."
    )
    items: tuple[TargetResult, ...] = Field(description="The results, in the order of the request's targets.")


def group_of(jobs: Sequence[Compilation]) -> Group:
    """The group of these compilations, which are all of its compilations, in order.

    Raises:
        ValueError: they have no group.
    """
    first = jobs[0]
    if first.group is None:
        raise ValueError(f"compilation {first.id} has no group")
    return Group(
        id=first.group,
        name=first.name,
        model=first.request.model,
        state=group_state([job.state for job in jobs]),
        created_at=min(job.created_at for job in jobs),
        items=tuple(jobs),
    )


def group_state(states: Collection[JobState]) -> JobState:
    """The state of a group, given those of its compilations."""
    if not all(state.final for state in states):
        return JobState.QUEUED if set(states) == {JobState.QUEUED} else JobState.RUNNING
    ends = (JobState.FAILED, JobState.CANCELLED)
    return next((state for state in ends if state in states), JobState.SUCCEEDED)


def shown_target(target: Target) -> str:
    """A target in words: its name, and what the request adds to it."""
    if isinstance(target, CudaTarget):
        beside = () if target.triple == LINUX_X86_64 else (target.triple,)
        return ", ".join((target_name(target), *beside))
    features = getattr(target, "features", ())
    cores = () if target.cores is None else (f"{target.cores} core{'' if target.cores == 1 else 's'}",)
    return ", ".join((target_name(target), *features, *cores))
