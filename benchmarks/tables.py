"""What the generated pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.machine import Machine


def newest(folder: Path, topic: str) -> Path | None:
    """The newest file of results on a topic."""
    return max(folder.glob(f"*-{topic}.json"), default=None)


def from_file(path: Path) -> str:
    """Which results are shown, as the beginning of a sentence."""
    date = path.name[: len("2026-01-01")]
    return f"Those below are from [{date}](../benchmarks/results/{path.name}):"


def describe_machine(machine: Machine) -> str:
    """A machine in a few words."""
    return (
        f"{machine.cores} cores of an {machine.processor}, {machine.memory_gib:g} GiB, Linux {machine.kernel}"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
