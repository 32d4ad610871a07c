"""Runs of a compiled library on inputs that a client uploads."""

from datetime import datetime

from pydantic import Field

from bessemer.contract.base import Digest, Document, JobId
from bessemer.contract.job import Artifact, JobState
from bessemer.contract.problem import Problem
from bessemer.contract.report import Latency
from bessemer.contract.request import EntryName
from bessemer.contract.tensor import TensorSpec

OUTPUTS = "outputs.npz"
DEFAULT_RUNS = 10
MAX_RUNS = 10_000


class Invocation(Document):
    """One run of a compilation's library on a worker, in a job's sandbox."""

    id: JobId = Field(
        description="A unique id. It recurs only if you delete the invocation and send its `Idempotency-Key` "
        "again."
    )
    compilation: JobId = Field(description="The compilation whose library runs.")
    state: JobState = Field(description="The same states as a compilation's, from `queued` on.")
    inputs: Digest = Field(description="The SHA-256 of the uploaded inputs.")
    inputs_bytes: int = Field(description="The size of the uploaded file of inputs.")
    runs: int = Field(description="Requested number of timed runs, after the run that produces the outputs.")
    entry: EntryName | None = Field(
        default=None, description="The entry point to run, by its name in the request; null: the first."
    )
    attempt: int = Field(default=0, description="Number of times a worker started it; 0 while it waits.")
    lost_attempts: int = Field(
        default=0, description="Attempts whose worker was lost; after three, the invocation fails."
    )
    worker: str | None = Field(
        default=None,
        description="The worker that runs it or ran it last; null before the first, and after a worker "
        "returns it.",
    )
    threads: int | None = Field(
        default=None, description="Number of threads that the library used; null until it succeeds."
    )
    latency: Latency | None = Field(
        default=None, description="Latency of the timed runs; null if `runs` is 0, and until it succeeds."
    )
    outputs: tuple[TensorSpec, ...] = Field(
        default=(), description="The library's outputs, in order; empty until it succeeds."
    )
    artifact: Artifact | None = Field(
        default=None,
        description="The outputs by name, as `.npz`; bfloat16 is stored as its bits in uint16. Null until it "
        "succeeds.",
    )
    problem: Problem | None = Field(default=None, description="Why it failed; null unless it failed.")
    created_at: datetime = Field(description="When it was submitted.")
    started_at: datetime | None = Field(
        default=None, description="When a worker first started it; null before."
    )
    finished_at: datetime | None = Field(
        default=None, description="When it succeeded, failed or was cancelled; null before."
    )


class InvocationPage(Document):
    """A page of a compilation's invocations, newest first."""

    items: tuple[Invocation, ...] = Field(description="Up to `limit` entries.")
    next: str | None = Field(
        default=None, description="Pass this as `cursor` to get the next page; null on the last page."
    )
