"""The stages of the pipeline, in order. Stage = file = class = name in the API, the logs and the metrics."""

from enum import StrEnum


class Stage(StrEnum):
    """A step between an upload and a bundle."""

    CAPTURE = "capture"
    TRANSLATE = "translate"
    OPTIMIZE = "optimize"
    TUNE = "tune"
    BUILD = "build"
    VERIFY = "verify"
    BENCHMARK = "benchmark"
    PACKAGE = "package"
