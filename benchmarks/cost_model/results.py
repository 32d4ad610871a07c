"""The content of ``benchmarks/results/<date>-cost-model.json``."""

from datetime import datetime

from pydantic import BaseModel

from benchmarks.machine import Machine


class FamilyAccuracy(BaseModel):
    """How plans of a family were ranked on functions that the model had not seen.

    ``accuracy`` is of pairs of plans, ``regret`` how much longer than the best the first choice takes; those
    of the family's own model are ``analytic``. ``used`` says whether the learned model takes its place.
    """

    family: str
    kind: str
    functions: int
    pairs: int
    accuracy: float
    analytic_accuracy: float
    regret: float
    analytic_regret: float
    used: bool


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
    accuracy: list[FamilyAccuracy]
