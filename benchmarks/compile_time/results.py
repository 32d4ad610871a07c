"""The results of ``benchmarks.compile_time.published``."""

from __future__ import annotations

from pydantic import BaseModel

from benchmarks.machine import Machine
from bessemer.contract.report import StageTime


class Published(BaseModel):
    """A model, and the seconds from ``POST`` to the unpacked bundle.

    Attributes:
        early_seconds: those to a bundle that is published before it is measured; None in older files.
        again_seconds: the same for other weights, with the functions in the worker's cache; None in older
            files.
    """

    model: str
    parameters: int
    upload_seconds: float
    job_seconds: float
    bundle_seconds: float
    early_seconds: float | None = None
    again_seconds: float | None = None
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
