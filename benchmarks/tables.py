"""Helpers for the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.machine import Machine


def newest(folder: Path, topic: str) -> Path | None:
    """The newest results file of a topic."""
    return max(folder.glob(f"*-{topic}.json"), default=None)


def from_file(path: Path) -> str:
    """The link to a results file, at the start of a sentence."""
    date = path.name[: len("2026-01-01")]
    return f"Results of [{date}](../benchmarks/results/{path.name}):"


def describe_machine(machine: Machine) -> str:
    """Describe a machine in a few words."""
    return (
        f"{machine.cores} cores of an {machine.processor}, {machine.memory_gib:g} GiB, Linux {machine.kernel}"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
