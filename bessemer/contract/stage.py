"""The stages of the pipeline, in order. Files, classes, logs and metrics use the same names."""

from collections.abc import Mapping
from types import MappingProxyType

from bessemer.contract.base import GrowingEnum


class Stage(GrowingEnum):
    """A stage of the pipeline."""

    CAPTURE = "capture"
    TRANSLATE = "translate"
    OPTIMIZE = "optimize"
    TUNE = "tune"
    BUILD = "build"
    VERIFY = "verify"
    BENCHMARK = "benchmark"
    PACKAGE = "package"

    def includes(self, other: "Stage") -> bool:
        """Whether the other stage is this one or an earlier one."""
        return tuple(Stage).index(other) <= tuple(Stage).index(self)


UNITS: Mapping[str, str] = MappingProxyType(
    {
        Stage.OPTIMIZE: "passes",
        Stage.TUNE: "trials",
        Stage.BUILD: "functions",
        Stage.BENCHMARK: "rounds",
    }
)
"""What the progress of each stage counts."""
