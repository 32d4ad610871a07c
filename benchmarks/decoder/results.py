"""The content of ``benchmarks/results/<date>-decoder.json``."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from benchmarks.machine import Machine
from benchmarks.models.results import Ratio, State
from bessemer.contract.report import Latency


class Clock(StrEnum):
    """How runs are timed.

    The process's processor time suits one thread on a busy machine: it leaves out what other programs take.
    """

    WALL = "wall"
    PROCESSOR = "processor"


class Case(BaseModel):
    """What is timed: ``tokens`` tokens, the first of which stands at ``position``."""

    tokens: int
    position: int

    @property
    def title(self) -> str:
        """The heading of its column."""
        if self.tokens > 1:
            return f"prompt of {self.tokens} tokens"
        return f"decode at {self.position}"


class CaseResult(BaseModel):
    """A runtime in one case. The ratio is our time divided by the peer's, per round."""

    case: Case
    latency: Latency
    ratio: Ratio | None = None

    @property
    def tokens_per_second(self) -> float:
        """By the median of all runs."""
        return 1000 * self.case.tokens / self.latency.p50_ms

    @property
    def best_tokens_per_second(self) -> float:
        """By the fastest run."""
        return 1000 * self.case.tokens / self.latency.min_ms


class RuntimeResult(BaseModel):
    """A runtime. ``error`` is the largest difference from the model without a cache, relative to its range.

    ``tokens`` are those that it writes after the prompt, greedily; ``note`` says why cases are missing.
    """

    name: str
    form: str
    version: str | None = None
    state: State = State.MEASURED
    note: str = ""
    ready_seconds: float | None = None
    error: float | None = None
    tokens: list[int] = []
    cases: list[CaseResult] = []


class DecoderResults(BaseModel):
    """The results of one run.

    ``read_gb_per_second`` is the speed of reading an array as large as the parameters with all threads, the
    best of several.
    """

    machine: Machine
    measured_at: datetime
    minutes: float
    load_before: float
    load_after: float
    threads: int
    rounds: int
    clock: Clock
    parameters: int
    max_length: int
    read_gb_per_second: float
    runtimes: list[RuntimeResult]
