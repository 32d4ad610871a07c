"""Bessemer compiles a PyTorch model to a library that is ready to ship.

``bessemer.Client().submit(module, inputs={"x": (1, 784)}, target="host").wait().download("out")``

Names are imported on first use, so the server processes never load the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bessemer.client import AsyncClient, AsyncGroup, AsyncJob, Client, Group, Job
    from bessemer.contract.dynamic import DimensionRange
    from bessemer.contract.job import JobState
    from bessemer.contract.model import ModelFormat, ModelState
    from bessemer.contract.options import (
        BenchmarkOptions,
        InspectOptions,
        OptimizeOptions,
        TranslateOptions,
        TuneOptions,
        VerifyOptions,
    )
    from bessemer.contract.request import CompilationRequest, Submission
    from bessemer.contract.stage import Stage
    from bessemer.contract.target import ExplicitTarget, PresetTarget
    from bessemer.contract.tensor import InputSpec, TensorSpec
    from bessemer.errors import BessemerError

    __version__: str

__all__ = [
    "AsyncClient",
    "AsyncGroup",
    "AsyncJob",
    "BenchmarkOptions",
    "BessemerError",
    "Client",
    "CompilationRequest",
    "DimensionRange",
    "ExplicitTarget",
    "Group",
    "InputSpec",
    "InspectOptions",
    "Job",
    "JobState",
    "ModelFormat",
    "ModelState",
    "OptimizeOptions",
    "PresetTarget",
    "Stage",
    "Submission",
    "TensorSpec",
    "TranslateOptions",
    "TuneOptions",
    "VerifyOptions",
    "__version__",
]

_MODULES = {
    "AsyncClient": "bessemer.client",
    "AsyncGroup": "bessemer.client",
    "AsyncJob": "bessemer.client",
    "BenchmarkOptions": "bessemer.contract.options",
    "BessemerError": "bessemer.errors",
    "Client": "bessemer.client",
    "CompilationRequest": "bessemer.contract.request",
    "DimensionRange": "bessemer.contract.dynamic",
    "ExplicitTarget": "bessemer.contract.target",
    "Group": "bessemer.client",
    "InputSpec": "bessemer.contract.tensor",
    "InspectOptions": "bessemer.contract.options",
    "Job": "bessemer.client",
    "JobState": "bessemer.contract.job",
    "ModelFormat": "bessemer.contract.model",
    "ModelState": "bessemer.contract.model",
    "OptimizeOptions": "bessemer.contract.options",
    "PresetTarget": "bessemer.contract.target",
    "Stage": "bessemer.contract.stage",
    "Submission": "bessemer.contract.request",
    "TensorSpec": "bessemer.contract.tensor",
    "TranslateOptions": "bessemer.contract.options",
    "TuneOptions": "bessemer.contract.options",
    "VerifyOptions": "bessemer.contract.options",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("bessemer")
    if name not in _MODULES:
        raise AttributeError(f"module 'bessemer' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
