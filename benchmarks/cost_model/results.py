"""The content of ``benchmarks/results/<date>-cost-model.json``."""

from datetime import datetime

from pydantic import BaseModel

from benchmarks.machine import Machine
from bessemer.contract.cost_model import RankedFamily


class CostModelResults(BaseModel):
    """The results of one run; ``models`` are the sources of functions besides drawn layers."""

    machine: Machine
    measured_at: datetime
    load_before: float
    load_after: float
    models: list[str]
    functions: int
    plans: int
    version: str
    model_bytes: int
    accuracy: list[RankedFamily]
