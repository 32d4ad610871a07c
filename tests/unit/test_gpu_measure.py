"""The results file of the benchmark on GPUs, which several runs fill."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import measure


class Started:
    """A case's process that writes its result at once."""

    def __init__(self, case: str, work: Path) -> None:
        times = {"Bessemer": {"warm_ms": 0.5}}
        failed = {"case": case, "verdict": "failed", "error": " killed"}
        done = {"case": case, "verdict": "matches", "times": times}
        (work / f"{case}.json").write_text(json.dumps(failed if case == "broken" else done))

    def wait(self, _seconds: float | None = None) -> int:
        return 0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measure, "_machine", lambda: {"gpu": "Fake GPU"})
    monkeypatch.setattr(measure, "_ceilings", lambda: {"bfloat16_tflops": 1.0})
    monkeypatch.setattr(measure, "measure_products", lambda _folder: [])
    for case in ("broken", "mlp-1-f32", "resnet18-1-f32"):
        (tmp_path / "cases" / case).mkdir(parents=True)
        (tmp_path / "cases" / case / "manifest.json").touch()
    return tmp_path


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[dict[str, Any], list[str]]:
    """The results after a run, and the cases that it started."""
    started: list[str] = []

    def start(case: str, work: Path) -> Started:
        started.append(case)
        return Started(case, work)

    results = folder / "results.json"
    monkeypatch.setattr(measure, "_start", start)
    monkeypatch.setattr(sys, "argv", ["measure", str(folder), str(results), *options])
    measure.main()
    return json.loads(results.read_text()), started


def test_a_second_run_measures_only_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = run(folder, monkeypatch)
    found, second = run(folder, monkeypatch)
    assert first == ["broken", "mlp-1-f32", "resnet18-1-f32"]
    assert second == ["broken"]
    assert [case["case"] for case in found["cases"]] == first


def test_a_run_with_compiled_peers_replaces_the_cases_that_it_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = [{"case": "bert-1-f32", "verdict": "matches"}, {"case": "mlp-1-f32", "verdict": "old"}]
    products = [{"shape": {}}]
    (folder / "results.json").write_text(json.dumps({"cases": earlier, "products": products}))
    found, started = run(folder, monkeypatch, "--compile", "--only", "resnet18-1-f32", "mlp-1-f32")
    assert started == ["resnet18-1-f32", "mlp-1-f32"]
    verdicts = {case["case"]: case["verdict"] for case in found["cases"]}
    assert verdicts == {"bert-1-f32": "matches", "mlp-1-f32": "matches", "resnet18-1-f32": "matches"}
    assert found["products"] == products
