"""Search a hand-written space for one function of the MLP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bessemer.client import Client
from bessemer.contract.options import TuneOptions
from bessemer.errors import CompilationFailedError
from examples.course.session import run, trained

FUNCTION = "fused_linear_add_relu"
SPACE = "course-matmul"


def show(client: Client, folder: Path) -> None:
    """Measure eight samples, and use the best because ``force`` is set."""
    model = trained("mlp", folder)
    asked = TuneOptions(trials=8, spaces={FUNCTION: SPACE}, force=True)
    bundle = client.submit(model, tune=asked).wait().download(folder / "bundle")
    (task,) = json.loads((bundle / "report.json").read_text())["tune"]["tasks"]
    print(f"{task['name']}: {task['trials']} trials in the space {task['space']}")
    print(f"the space's best {task['found_ms']:.4g} ms, the default {task['default_ms']:.4g} ms")
    assert (task["name"], task["space"], task["trials"], task["kept"]) == (FUNCTION, SPACE, 8, True)
    _show_records(bundle / "records", task)
    subprocess.run([sys.executable, bundle / "run.py"], check=True, capture_output=True)
    _show_refusal(client, model)


def _show_records(records: Path, task: dict[str, int]) -> None:
    measured = (records / "database_tuning_record.json").read_text().splitlines()
    assert len(measured) == task["trials"] - task["failed"]
    decisions = [
        line.strip()
        for line in (records / f"{FUNCTION}.py").read_text().splitlines()
        if "sample_perfect_tile" in line
    ]
    print(*decisions, sep="\n")
    assert len(decisions) == 3


def _show_refusal(client: Client, model: Path) -> None:
    wrong = TuneOptions(trials=1, spaces={"fused_conv*": SPACE})
    try:
        client.submit(model, tune=wrong).wait()
    except CompilationFailedError as error:
        print(f"{error.problem.code.value}: {error.problem.detail}")
        assert FUNCTION in error.problem.detail
    else:
        raise AssertionError("the MLP has no convolution")


if __name__ == "__main__":
    run(show)
