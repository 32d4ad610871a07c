"""Surveys architectures: ``python -m benchmarks.architectures [--forms pt2,traced] [NAME-PART…]``.

Each goes through the stages in a process of its own. The table is printed, and written to
``benchmarks/results/<date>-architectures.json`` while it grows.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch
from pydantic import TypeAdapter
from torch import nn

from benchmarks.architectures.entry import Architecture
from benchmarks.architectures.survey import Form, Outcome, survey

RESULTS = Path(__file__).parents[1] / "results"
SOURCES = {"torch": "plain_models", "torchvision": "torchvision_models", "timm": "timm_models",
           "transformers": "transformers_models"}  # fmt: skip
PATIENCE_SECONDS = 600
_OUTCOMES = TypeAdapter(list[Outcome])


def main() -> None:
    """Survey what the command line names; all of what is installed without."""
    options = _options()
    path = options.out or RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-architectures.json"
    outcomes = _OUTCOMES.validate_json(path.read_bytes()) if path.exists() else []
    warm_up()
    for architecture in _chosen(options.names):
        for form in options.forms:
            outcome = _apart(architecture, form)
            outcomes = [one for one in outcomes if (one.name, one.form) != (outcome.name, outcome.form)]
            outcomes.append(outcome)
            path.write_bytes(_OUTCOMES.dump_json(outcomes, indent=1) + b"\n")
            print(f"{outcome.name:40} {form.value:9} {outcome.reached:10} {outcome.error[:150]}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    parser.add_argument(
        "--forms", type=lambda text: [Form(one) for one in text.split(",")], default=[Form.PT2]
    )
    parser.add_argument("--out", type=Path, help="the file of results to extend")
    return parser.parse_args()


def _chosen(parts: list[str]) -> Iterator[Architecture]:
    for package, module in SOURCES.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package} is not installed")
            continue
        for architecture in importlib.import_module(f"benchmarks.architectures.{module}").architectures():
            if not parts or any(part in architecture.name for part in parts):
                yield architecture


def warm_up() -> None:
    """What torch and TVM set up on first use, for the processes that are forked from this one."""
    torch.set_num_threads(1)
    os.environ.setdefault("TVM_NUM_THREADS", "1")
    from worker.pipeline.rehearsal import rehearse

    rehearse()
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))


def _apart(architecture: Architecture, form: Form) -> Outcome:
    """Survey one in a process of its own: it may crash."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(PATIENCE_SECONDS)
        with os.fdopen(writer, "w") as answer:
            answer.write(survey(architecture, form).model_dump_json())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if text:
        return Outcome.model_validate_json(text)
    how = signal.Signals(status & 127).name if status & 127 else f"exit {status >> 8}"
    return Outcome(name=architecture.name, form=form, reached="nothing", error=f"the process ended: {how}")


if __name__ == "__main__":
    main()
