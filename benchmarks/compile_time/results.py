"""The results of ``benchmarks.compile_time.published``."""

from __future__ import annotations

from pydantic import BaseModel

from benchmarks.machine import Machine
from bessemer.contract.report import StageTime


class Published(BaseModel):
    """A model, and the seconds from its upload to the unpacked bundle."""

    model: str
    parameters: int
    upload_seconds: float
    job_seconds: float
    bundle_seconds: float
    stages: list[StageTime]

    @property
    def rest_seconds(self) -> float:
        """From ``POST`` to the bundle without the stages: fetching, checking, storing, downloading."""
        return self.bundle_seconds - sum(time.seconds for time in self.stages)


class PublishedResults(BaseModel):
    """One run of this benchmark."""

    machine: Machine
    load_before: float
    load_after: float
    models: list[Published]
