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

    def includes(self, other: "Stage") -> bool:
        """Whether the other stage has run once this one has."""
        return tuple(Stage).index(other) <= tuple(Stage).index(self)
