"""Schedule one layer of the MLP with primitives, without a search, and read back the trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bessemer.client import Client
from bessemer.errors import CompilationFailedError
from examples.course.session import run, trained

FUNCTION = "fused_linear_add_relu"

SCHEDULE = """
def schedule(sch):
    linear, add, relu = (sch.get_sblock(name) for name in ("linear", "T_add", "bounded"))
    sch.compute_inline(add)
    i, j, k = sch.get_loops(linear)
    j_outer, j_inner = sch.split(j, sch.sample_perfect_tile(j, n=2, max_innermost_factor=64))
    k_outer, k_inner = sch.split(k, [None, 4])
    sch.reorder(i, j_outer, k_outer, k_inner, j_inner)
    sch.reverse_compute_at(relu, j_outer)
    sch.vectorize(j_inner)
    sch.parallel(j_outer)
    sch.decompose_reduction(linear, k_outer)
"""


def show(client: Client, folder: Path) -> None:
    """Compile with the schedule, then with a primitive that does not apply."""
    model, file = trained("mlp", folder), folder / "my_schedule.py"
    file.write_text(SCHEDULE)
    job = client.submit(model, schedules={FUNCTION: file}).wait()
    bundle = job.download(folder / "bundle")
    tune = json.loads((bundle / "report.json").read_text())["tune"]
    (given,) = tune["schedules"]
    print(f"{given['function']}: {given['schedule_ms']:.4g} ms, the default {given['default_ms']:.4g} ms")
    assert (tune["trials"], given["file"]) == (0, "my_schedule.py:schedule")
    _show_records(bundle / "records")
    subprocess.run([sys.executable, bundle / "run.py"], check=True, capture_output=True)
    _show_refusal(client, model, file)


def _show_records(records: Path) -> None:
    trace = (records / f"{FUNCTION}.py").read_text()
    scheduled = (records / f"{FUNCTION}.tvmscript.py").read_text()
    print(*(line for line in trace.splitlines() if "sch." in line), sep="\n")
    assert "sch.sample_perfect_tile(" in trace
    assert "decision=" in trace
    assert "T.parallel(" in scheduled
    assert "T.vectorized(" in scheduled


def _show_refusal(client: Client, model: Path, file: Path) -> None:
    file.write_text("def schedule(sch):\n    sch.compute_inline(sch.get_sblock('linear'))\n")
    try:
        client.submit(model, schedules={FUNCTION: file}).wait()
    except CompilationFailedError as error:
        print(f"{error.problem.code.value}: {error.problem.detail}")
        assert "line 2" in error.problem.detail
        assert "linear (i0 1, i1 128, k 784)" in error.problem.detail
    else:
        raise AssertionError("a reduction cannot be inlined")


if __name__ == "__main__":
    run(show)
