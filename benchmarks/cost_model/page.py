"""The part of docs/figures.md about the cost model that ships with the project."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cost_model.results import CostModelResults
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.contract.cost_model import MIN_FUNCTIONS, RankedFamily
from bessemer.figures.words import percent

TOPIC = "cost-model"


def section(folder: Path) -> list[str]:
    """The section; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = CostModelResults.model_validate_json(path.read_text())
    return [
        "## The learned cost model",
        "",
        f"Run `make bench-cost-model` to repeat this. {from_file(path)} "
        f"{describe_machine(results.machine)}; load average {results.load_before:g} before and "
        f"{results.load_after:g} after.",
        "",
        f"Version `{results.version}` ({results.model_bytes / 1024:.0f} KiB) was trained on "
        f"{results.plans:,} plans of {results.functions:,} functions: those of {', '.join(results.models)}, "
        f"and drawn layers. Each row is about "
        "functions that the ranking trees had not seen, held out by model. A pair is two plans of a function "
        "whose times differ by 3 % or more. The loss is how much longer than the fastest measured plan the "
        "first choice takes, the geometric mean over functions. Searches use the learned model where both of "
        "its figures are better, and at least "
        f"{MIN_FUNCTIONS} functions show it:",
        "",
        *table(
            (
                "family",
                "processor",
                "functions",
                "pairs",
                "learned",
                "family's model",
                "loss, learned",
                "own",
                "used",
            ),
            map(_row, results.accuracy),
        ),
        "",
    ]


def _row(one: RankedFamily) -> tuple[str, ...]:
    return (
        one.family,
        one.kind,
        f"{one.functions}",
        f"{one.pairs:,}",
        percent(one.accuracy),
        percent(one.analytic_accuracy),
        percent(one.regret),
        percent(one.analytic_regret),
        "yes" if one.used else "no",
    )
