"""Measures plans of functions, trains the cost model that ships, and judges it: ``make bench-cost-model``.

The measurements of this machine go to a file of lines, one for each function. More of them, for other numbers
of threads or from other machines, can be added: ``--measured`` names any number of such files, and
``--minutes 0`` only trains.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.cost_model.page import TOPIC
from benchmarks.cost_model.results import CostModelResults
from benchmarks.machine import describe
from bessemer.contract.cost_model import MeasuredFunction
from worker.compiler.tuning.cost_model import trees
from worker.compiler.tuning.cost_model.training import train
from worker.measure.machine import processor

RESULTS = Path(__file__).parents[1] / "results"
SHIPPED = Path(trees.__file__).with_name(trees.SHIPPED)
MINUTES = 30.0
THREADS = (1, 2)


def main() -> None:
    """Measure in a process for each number of threads, train, and write the model and its figures."""
    arguments = _arguments()
    if arguments.threads is not None:
        _measure(arguments)
        return
    load_before = os.getloadavg()[0]
    for threads in THREADS if arguments.minutes else ():
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.cost_model", *sys.argv[1:]]
        share = arguments.minutes / len(THREADS)
        environment = {**os.environ, "TVM_NUM_THREADS": str(threads)}
        own = ("--threads", str(threads), "--minutes", str(share))
        subprocess.run([*command, *own], check=True, env=environment)
    functions = [
        MeasuredFunction.model_validate_json(line)
        for path in arguments.measured
        for line in path.read_text().splitlines()
    ]
    source = f"{processor()}, {datetime.now(UTC):%Y-%m-%d}, python -m benchmarks.cost_model"
    model = train(functions, arguments.seed, len(os.sched_getaffinity(0)), source)
    text = trees.write_model(model)
    arguments.output.write_bytes(text)
    results = CostModelResults(
        machine=describe(("xgboost-cpu",)),
        measured_at=datetime.now(UTC),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        models=sorted({each.source for each in functions if not each.source.startswith("layers")}),
        functions=model.functions,
        plans=model.plans,
        version=model.version,
        model_bytes=len(text),
        accuracy=list(model.accuracy),
    )
    for one in results.accuracy:
        print(
            f"{one.family:12} {one.kind:19} {one.functions:4} functions {one.pairs:6} pairs  "
            f"{one.accuracy:.3f} ({one.analytic_accuracy:.3f})  loss {one.regret:.3f} "
            f"({one.analytic_regret:.3f})  {'used' if one.used else ''}"
        )
    path = RESULTS / f"{results.measured_at:%Y-%m-%d}-{TOPIC}.json"
    path.write_text(results.model_dump_json(indent=2) + "\n")
    print(f"written to {path} and {arguments.output} ({len(text)} bytes)")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-cost-model", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for measuring; 0: only train")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the drawn layers and plans, and of the training"
    )
    parser.add_argument(
        "--measured", type=Path, nargs="+", default=[Path("plans.jsonl")], help="files of lines"
    )
    parser.add_argument("--output", type=Path, default=SHIPPED, help="the model's file")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> None:
    """Add lines to the first file until the time is over."""
    from benchmarks.cost_model.measure import time_functions

    end = time.monotonic() + 60 * arguments.minutes
    draws = random.Random(arguments.seed)
    with arguments.measured[0].open("a") as lines:
        for found in time_functions(arguments.threads, draws, lambda: time.monotonic() < end):
            lines.write(found.model_dump_json() + "\n")
            lines.flush()
            print(f"{found.source:16} {found.family:12} {found.kind} {len(found.seconds)}", flush=True)


if __name__ == "__main__":
    main()
