"""Whom the pipeline shows its module to. Imports no compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bessemer.contract.stage import Stage

if TYPE_CHECKING:
    import tvm


class Recorder(Protocol):
    """Is given the module after every pass."""

    def record(self, stage: Stage, phase: str, name: str, seconds: float, module: tvm.IRModule) -> None:
        """Take note of a module. Passes of one stage come in their order."""
        ...


class NoRecorder:
    """Where nobody asked for snapshots."""

    def record(self, stage: Stage, phase: str, name: str, seconds: float, module: tvm.IRModule) -> None:
        """Forget it."""
