"""Surveys architectures: ``python -m benchmarks.architectures [--until translated] [NAME-PART…]``.

``--until translated`` takes seconds for each, and lists missing rules.

Each form of each architecture runs in its own process. An interrupted survey resumes from
``build/architectures.jsonl``. A complete one writes ``benchmarks/results/<date>-architectures.json``; with
``--write``, an incomplete one does too, and keeps older results of what it did not run.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.architectures.entry import Architecture
from benchmarks.architectures.outcomes import (
    Form,
    Outcome,
    Reached,
    Survey,
    read_outcomes,
    sort_outcomes,
)
from benchmarks.architectures.page import STAGES, count_row
from benchmarks.architectures.processes import Task, survey_each, warm_up
from benchmarks.machine import describe
from benchmarks.tables import newest
from bessemer.contract.target import HOST

ROOT = Path(__file__).parents[2]
PROGRESS = ROOT / "build" / "architectures.jsonl"
RESULTS = ROOT / "benchmarks" / "results"
SOURCES = {"package_models": "torch", "plain_models": "torch", "torchvision_models": "torchvision",
           "timm_models": "timm", "transformers_models": "transformers"}  # fmt: skip
"""Modules, and the package that each needs."""


def main() -> None:
    """Survey the named architectures, or all that are installed."""
    options = _options()
    options.progress.parent.mkdir(exist_ok=True)
    tasks = _tasks(options)
    warm_up()
    survey_each(tasks, options.until, options.progress, options.jobs, preset=options.target)
    outcomes = read_outcomes(options.progress)
    _print_summary(outcomes.values())
    if options.target != HOST:
        write_elsewhere(outcomes.values(), options.target)
        return
    is_whole = not options.names and not options.forms and options.until is Reached.VERIFIED
    if is_whole or options.write:
        write_results(outcomes.values())


def write_results(outcomes: Iterable[Outcome]) -> None:
    """Write the outcomes, the machine and the versions; keep older results of what was not run."""
    packages = tuple(name for name in set(SOURCES.values()) if importlib.util.find_spec(name) is not None)
    known = {(one.name, one.form): one for one in (*_newest_outcomes(), *outcomes)}
    found = sort_outcomes(known.values())
    run = {(one.name, one.form) for one in found}
    left = [one.name for one in _chosen([]) if not all((one.name, form) in run for form in one.forms)]
    survey = Survey(machine=describe(packages), outcomes=found, not_run=left)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-architectures.json"
    path.write_text(survey.model_dump_json(indent=1) + "\n")


def write_elsewhere(outcomes: Iterable[Outcome], target: str) -> None:
    """Write the outcomes of a survey for another target than this machine."""
    packages = tuple(name for name in set(SOURCES.values()) if importlib.util.find_spec(name) is not None)
    survey = Survey(machine=describe(packages), outcomes=sort_outcomes(outcomes))
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-architectures-{target}.json"
    path.write_text(survey.model_dump_json(indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument("--forms", nargs="+", type=Form, default=[], help="only these forms")
    parser.add_argument("--until", type=Reached, default=Reached.VERIFIED, help="the last stage to run")
    parser.add_argument("--again", action="store_true", help="repeat finished architectures")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--target", default=HOST, help="a preset whose libraries run under emulation")
    parser.add_argument("--write", action="store_true", help="write results, even of a partial survey")
    parser.add_argument("--progress", type=Path, default=PROGRESS, help="the progress file")
    return parser.parse_args()


def _tasks(options: argparse.Namespace) -> list[Task]:
    """The remaining tasks: new models first, then the fastest by the newest results."""
    found = read_outcomes(options.progress)
    seconds = {one.name: one.seconds for one in (*_newest_outcomes(), *found.values())}
    tasks = {
        (architecture.name, form): (architecture, form)
        for architecture in _chosen(options.names)
        for form in options.forms or architecture.forms
    }
    left = [
        key for key in tasks if options.again or key not in found or not found[key].is_done(options.until)
    ]
    left.sort(key=lambda key: seconds.get(key[0], 0.0))
    return [tasks[key] for key in left]


def _newest_outcomes() -> list[Outcome]:
    path = newest(RESULTS, "architectures")
    if path is None:
        return []
    outcomes = Survey.model_validate_json(path.read_text()).outcomes
    return [one.model_copy(update={"carried_from": one.carried_from or path.name[:10]}) for one in outcomes]


def _chosen(parts: list[str]) -> Iterator[Architecture]:
    for module, package in SOURCES.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed")
            continue
        for architecture in importlib.import_module(f"benchmarks.architectures.{module}").architectures():
            if not parts or any(part in architecture.name for part in parts):
                yield architecture


def _print_summary(outcomes: Iterable[Outcome]) -> None:
    _, saved, *reached, strict, _ = count_row("", list(outcomes))
    stages = ", ".join(f"{count} {stage.value}" for count, stage in zip(reached, STAGES, strict=True))
    print(f"of {saved} saved: {stages}, {strict} strictly")


if __name__ == "__main__":
    main()
