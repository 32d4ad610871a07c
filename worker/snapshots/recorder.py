"""Writes each snapshot of a module at once, so that a job that fails leaves the earlier ones."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import tvm

from bessemer.contract.ir import IR_INDEX, IR_TEXTS, IrListing, IrStep
from bessemer.contract.stage import Stage
from worker.protocol.observer import JobObserver
from worker.snapshots.constants import constant_lines, constant_values
from worker.snapshots.counts import count_module
from worker.snapshots.frames import FrameWriter

MAX_TOTAL_BYTES = 1 << 26
"""The limit of all texts and diffs of a job before compression. Later steps keep only counts and times."""

MAX_STEPS = 500
"""Many times the steps of a job. Later steps are not recorded, so that the index stays small."""

MAX_COMPARED_LINES = 40_000
"""The limit of two texts together: comparing takes up to the product of their lengths."""

_OMITTED = "# Metadata omitted."


class IrRecorder(JobObserver):
    """Appends each snapshot to ``ir.zst`` and rewrites ``ir.json`` in a folder.

    Whenever the process ends, the index names only bytes that are written.
    """

    def __init__(self, folder: Path, with_constants: bool = False) -> None:
        self._folder = folder
        self._with_constants = with_constants
        self._constants: dict[Any, str] = {}
        self._steps: list[IrStep] = []
        self._lines: list[str] = []
        self._frames = FrameWriter(folder / IR_TEXTS, MAX_TOTAL_BYTES)

    def snapshot(self, stage: Stage, phase: str, name: str, seconds: float, module: tvm.IRModule) -> None:
        """Write the module's text, its diff and its counts."""
        if len(self._steps) >= MAX_STEPS:
            return
        lines = script_lines(module)
        if self._with_constants:
            script = "".join(lines)
            self._constants = constant_values(module, script, self._constants)
            lines += constant_lines(script, self._constants)
        difference = unified_diff(self._lines, lines) if self._steps else ""
        text, diff = self._frames.append("".join(lines)), self._frames.append(difference)
        step = IrStep(
            step=len(self._steps),
            stage=stage,
            phase=phase[:100],
            name=name[:200],
            seconds=seconds,
            changed=lines != self._lines,
            counts=count_module(module),
            text=text,
            diff=diff,
            truncated=not (text.is_whole and diff.is_whole),
        )
        self._lines = lines
        self._steps.append(step)
        self._write_index()

    def _write_index(self) -> None:
        fresh = self._folder / f"{IR_INDEX}.new"
        fresh.write_text(IrListing(items=tuple(self._steps)).model_dump_json(), encoding="utf-8")
        fresh.replace(self._folder / IR_INDEX)


def script_lines(module: tvm.IRModule) -> list[str]:
    """The module as lines of TVMScript, without the elements of constants."""
    lines = str(module.script(show_meta=False)).splitlines(keepends=True)
    return [line for line in lines if not line.startswith(_OMITTED)]


def unified_diff(before: list[str], after: list[str]) -> str:
    """The changes with three lines of context; only a note if the texts are very long."""
    if before == after:
        return ""
    if len(before) + len(after) > MAX_COMPARED_LINES:
        return f"# {len(before)} lines became {len(after)}: too many to compare\n"
    return "".join(difflib.unified_diff(before, after, "before", "after"))
