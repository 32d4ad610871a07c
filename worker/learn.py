"""Trains a cost model on the service's tuning records: ``python -m worker.learn FOLDER --output FILE``.

FOLDER holds an export of ``bessemer records export``, or MetaSchedule's database of a bundle. Its modules and
traces are read in this process, as a job reads them: train on records of your own service. The records
themselves are data; what they can do is rank badly, which the held-out functions show.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

NICE = 19
DATABASE = ("database_workload.json", "database_tuning_record.json")


def main(words: Sequence[str] | None = None) -> int:
    """Train, print the accuracy table, and write the model; status 2 if a path is wrong."""
    parser = argparse.ArgumentParser(prog="python -m worker.learn", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of exported records")
    parser.add_argument("--output", type=Path, required=True, help="the model's file")
    arguments = parser.parse_args(words)
    refusal = next(filter(None, map(_refusal, arguments.folders)), None)
    if refusal is None and not arguments.output.absolute().parent.is_dir():
        refusal = f"--output: there is no folder {arguments.output.parent}"
    if refusal is not None:
        parser.error(refusal)
    return _learn(arguments.folders, arguments.output)


def _refusal(folder: Path) -> str | None:
    """Why a folder has no records to learn from; None if it has."""
    if not folder.is_dir():
        return f"there is no folder {folder}; `bessemer records export {folder}` makes one"
    missing = [name for name in DATABASE if not (folder / name).is_file()]
    if missing:
        return f"{folder} has no {' and no '.join(missing)}: it is not an export of `bessemer records export`"
    return None


def _learn(folders: Sequence[Path], output: Path) -> int:
    from worker.compiler.schedules.blocks import REFUSALS
    from worker.compiler.tuning.cost_model.recorded import functions_of_records
    from worker.compiler.tuning.cost_model.training import MeasuredFunction, train
    from worker.compiler.tuning.cost_model.trees import write_model
    from worker.errors import short_message

    os.nice(NICE)
    functions: list[MeasuredFunction] = []
    for folder in folders:
        try:
            functions += functions_of_records(folder)
        except REFUSALS as error:
            sys.stderr.write(f"{folder} has no records that TVM can read: {short_message(error)}\n")
            return 2
    if not functions:
        sys.stderr.write("no function has two records of plans of its family: nothing to learn\n")
        return 1
    model = train(functions, source=f"{len(folders)} exports of records")
    output.write_bytes(write_model(model))
    for family in model.families:
        for judged in family.judged:
            sys.stdout.write(
                f"{family.family:12} {judged.kind}, {judged.functions} functions, {judged.pairs} "
                f"pairs: learned {judged.accuracy:.1%}, family's own {judged.analytic_accuracy:.1%}; "
                f"{'used' if judged.is_better else 'not used'}\n"
            )
    sys.stdout.write(
        f"{model.functions} functions, {model.plans} plans: version {model.version} in {output}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
