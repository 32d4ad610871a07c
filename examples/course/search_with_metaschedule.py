"""Let MetaSchedule search the MLP: with each of its strategies, and after the schedule families' plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bessemer.client import Client
from bessemer.contract.options import STRATEGIES, CostModel, SearchMethod, TuneOptions
from examples.course.session import run, trained

FUNCTION = "fused_linear_add_relu"
TRIALS = 16


def show(client: Client, folder: Path) -> None:
    """Search with each strategy, then with the default method, which first measures the families' plans."""
    model = trained("mlp", folder)
    for strategy in STRATEGIES:
        asked = TuneOptions(
            trials=TRIALS,
            search=SearchMethod.METASCHEDULE,
            strategy=strategy,
            cost_model=CostModel.XGB,
            max_trials_per_task=TRIALS // 2,
            seed=1,
        )
        _show_search(client, model, asked, folder / strategy)
    tasks = _show_search(client, model, TuneOptions(trials=TRIALS, from_records=False), folder / "both")
    assert [space["name"] for space in tasks[FUNCTION]["spaces"]] == ["plans", "metaschedule"]


def _show_search(client: Client, model: Path, asked: TuneOptions, folder: Path) -> dict[str, Any]:
    bundle = client.submit(model, tune=asked).wait().download(folder)
    tune = json.loads((bundle / "report.json").read_text())["tune"]
    assert tune["trials"] == TRIALS
    print(f"{asked.search.value}, {asked.strategy}: {tune['trials']} trials, kept: {tune['kept']}")
    tasks = {task["name"]: task for task in tune["tasks"]}
    for name, task in tasks.items():
        spaces = ", ".join(f"{space['trials']} of {space['name']}" for space in task["spaces"])
        print(f"  {name}: {spaces}; best {task['found_ms']:.4g} ms, default {task['default_ms']:.4g} ms")
    written = (bundle / "records" / "database_tuning_record.json").read_text().splitlines()
    assert len(written) == TRIALS - sum(task["failed"] for task in tasks.values())
    return tasks


if __name__ == "__main__":
    run(show)
