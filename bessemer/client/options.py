"""The arguments that all submissions share."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from bessemer.client.inputs import Dimensions, Inputs
from bessemer.client.ir_modules import Arrays
from bessemer.client.sources import ExtensionSource, Progress
from bessemer.contract.options import (
    BenchmarkOptions,
    InspectOptions,
    OptimizeOptions,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from bessemer.contract.request import Entry, Parameters
from bessemer.contract.stage import Stage


class UploadOptions(TypedDict, total=False):
    """The uploads of a submission, and what describes its model. ``Client.submit`` documents each."""

    inputs: Inputs
    dimensions: Dimensions
    extensions: Iterable[ExtensionSource]
    schedules: Mapping[str, ExtensionSource]
    records: str | os.PathLike[str]
    weights: Arrays
    reference: Arrays
    progress: Progress


class SubmitOptions(UploadOptions, total=False):
    """The arguments of ``Client.submit`` besides the model and the target."""

    constants: Mapping[str, bool | int | float | str | None]
    entries: Mapping[str, Entry | Mapping[str, Any]]
    stateless: bool
    translate: TranslateOptions
    optimize: OptimizeOptions
    parameters: Parameters | str
    kernels: Mapping[str, str]
    tune: TuneOptions
    verify: VerifyOptions
    benchmark: BenchmarkOptions
    inspect: InspectOptions
    stop_after: Stage
    device: str
    name: str
    labels: Mapping[str, str]
    priority: int
    timeout_seconds: float
    cache: bool
