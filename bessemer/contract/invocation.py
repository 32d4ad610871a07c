"""Runs of a compiled library on inputs that a client uploads."""

from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Digest, Document, JobId
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import Problem
from bessemer.contract.report import Latency
from bessemer.contract.tensor import TensorSpec

OUTPUTS = "outputs.npz"
DEFAULT_RUNS = 10
MAX_RUNS = 10_000


class Invocation(Document):
    """One run of a compilation's library, on a worker, in the confinement of a job."""

    id: JobId = Field(
        description="Unique; used again only where it was deleted and its `Idempotency-Key` is sent again."
    )
    compilation: JobId = Field(description="The compilation whose library runs.")
    state: JobState = Field(description="From `queued` on as a compilation's.")
    inputs: Digest = Field(description="The SHA-256 of the uploaded inputs.")
    inputs_bytes: int = Field(description="Of the file of inputs, as it was uploaded.")
    runs: int = Field(description="How often it was to be timed, after the run that made the outputs.")
    attempt: int = Field(default=0, description="How often a worker took it; 0 while it waits.")
    lost_attempts: int = Field(
        default=0, description="Attempts that ended without a word of their worker; after three it fails."
    )
    worker: str | None = Field(
        default=None, description="Who has it in hand, or had it last; null before, and once handed back."
    )
    threads: int | None = Field(
        default=None, description="With how many threads the library ran; null until it has succeeded."
    )
    latency: Latency | None = Field(
        default=None, description="Of the timed runs; null where `runs` is 0, and until it has succeeded."
    )
    outputs: tuple[TensorSpec, ...] = Field(
        default=(), description="What the library returned, in its order; empty until it has succeeded."
    )
    artifact: Artifact | None = Field(
        default=None,
        description="The outputs by name, as `.npz`; bfloat16 as its bits in uint16. Null until it has "
        "succeeded.",
    )
    problem: Problem | None = Field(default=None, description="Why it failed; null where it did not.")
    created_at: datetime = Field(description="When it was submitted.")
    started_at: datetime | None = Field(default=None, description="When a worker took it first; null before.")
    finished_at: datetime | None = Field(
        default=None, description="When it succeeded, failed or was cancelled; null before."
    )


class InvocationPage(Document):
    """A page of a compilation's invocations, newest first."""

    items: tuple[Invocation, ...] = Field(description="As many as `limit` says; fewer at the end.")
    next: str | None = Field(
        default=None, description="Pass as `cursor` for the next page; null on the last."
    )
