"""Which records a search keeps, and which it measures beside the default schedules."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from worker.compiler.tuning import record_selection
from worker.compiler.tuning.record_selection import uncompared, winners
from worker.compiler.tuning.search import Compared


def record(name: str) -> Any:
    return SimpleNamespace(as_measure_candidate=lambda: SimpleNamespace(sch=SimpleNamespace(mod=name)))


@dataclass
class Task:
    """What the selection reads of a search of a function."""

    best_record: Any
    best_seconds: float
    default_seconds: float = 1.0
    compared: Compared = field(default_factory=Compared)
    won_record: Any = None


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is measured; records named "fast" take half of the default schedule's time."""
    batches: list[list[str]] = []

    def measure(modules: list[str], *_given: Any) -> list[Any]:
        batches.append(modules)
        return [SimpleNamespace(run_secs=[0.5 if name == "fast" else 1.0]) for name in modules]

    monkeypatch.setattr(record_selection, "measure", measure)
    monkeypatch.setattr(record_selection, "default_module", lambda _task, _session: "default")
    return batches


def test_a_record_is_measured_once_beside_the_default_schedule(measured: list[list[str]]) -> None:
    tasks: Any = [Task(record("fast"), 0.5), Task(record("noise"), 0.9), Task(record("slow"), 1.1)]
    for _ in range(2):
        assert winners(tasks, Any) == [tasks[0].best_record]
    assert measured == [["fast", "noise", "default", "default"], []]


def test_a_better_record_is_measured_again_and_alone(measured: list[list[str]]) -> None:
    tasks: Any = [Task(record("fast"), 0.5), Task(record("noise"), 0.9)]
    winners(tasks, Any)
    tasks[1].best_record = record("fast")
    assert uncompared(tasks) == [tasks[1]]
    assert winners(tasks, Any) == [task.best_record for task in tasks]
    assert measured[1] == ["fast", "default"]


def test_a_record_that_loses_leaves_the_winner_before_it(measured: list[list[str]]) -> None:
    tasks: Any = [Task(record("fast"), 0.5)]
    (first,) = winners(tasks, Any)
    tasks[0].best_record, tasks[0].best_seconds = record("noise"), 0.4
    assert winners(tasks, Any) == [first]
    assert measured[1] == ["noise", "default"]
