"""The content of ``benchmarks/results/<date>-loading.json``."""

from datetime import datetime

from pydantic import BaseModel

from benchmarks.machine import Machine


class Loaded(BaseModel):
    """The measurements of one process, without its imports and their memory.

    ``second_bytes`` is what a second process with the same model adds to the memory of both.
    """

    ready_ms: float
    runs_ms: list[float]
    peak_bytes: int
    second_bytes: int


class RuntimeLoads(BaseModel):
    """A runtime's processes, one for each round; ``note`` says why there are none."""

    name: str
    form: str
    version: str | None
    note: str = ""
    rounds: list[Loaded] = []


class LoadingResults(BaseModel):
    """The results of one run."""

    machine: Machine
    measured_at: datetime
    minutes: float
    load_before: float
    load_after: float
    threads: int
    parameter_bytes: int
    runtimes: list[RuntimeLoads]
