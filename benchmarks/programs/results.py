"""The content of ``benchmarks/results/<date>-programs.json``."""

from datetime import datetime

from pydantic import BaseModel

from benchmarks.figure import Figure
from benchmarks.machine import Machine
from benchmarks.models.results import Ratio


class ProgramResult(BaseModel):
    """One way to run a model once in a fresh process.

    Attributes:
        name: what runs.
        milliseconds: from the process's start to its exit, with the model's outputs.
        mebibytes: the process's peak memory, with the pages of the files that it reads.
        files_bytes: the program, its libraries and the model; None if it needs Python.
        ratio: the time of the bundle's program divided by this one's, per round.
    """

    name: str
    milliseconds: Figure
    mebibytes: Figure
    files_bytes: int | None = None
    ratio: Ratio | None = None


class StartedModel(BaseModel):
    """A model, with the bundle's program first.

    ``over_estimate`` is the fastest measured run over the report's estimate at this processor's clock.
    """

    name: str
    programs: list[ProgramResult]
    over_estimate: float | None = None


class ProgramsResults(BaseModel):
    """The results of one run. ``missing`` says why a program was left out."""

    machine: Machine
    measured_at: datetime
    load_before: float
    threads: int
    rounds: int
    missing: list[str] = []
    models: list[StartedModel]
