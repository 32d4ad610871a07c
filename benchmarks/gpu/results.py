"""The content of ``benchmarks/results/<date>-gpu-kernels.json``."""

from datetime import datetime

from pydantic import BaseModel

from benchmarks.machine import Machine

TOPIC = "gpu-kernels"


class ModelKernels(BaseModel):
    """The kernels of a library: how many, and the most that one of them uses."""

    case: str
    arch: str
    kernels: int
    registers: int
    shared_bytes: int
    spilled_bytes: int
    spilling: list[str]


class KernelResults(BaseModel):
    """The results of one run."""

    machine: Machine
    measured_at: datetime
    models: list[ModelKernels]
