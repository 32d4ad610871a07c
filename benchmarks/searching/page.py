"""The part of docs/figures.md about searches."""

from __future__ import annotations

from pathlib import Path

from benchmarks.searching.results import Search, SearchedModel, SearchResults
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.figures.words import three_digits

TOPIC = "searches"
MOMENTS = (0.0, 0.1, 0.25, 0.5, 1.0)
"""Shares of the search's time for which the page shows the model's latency."""


def section(folder: Path) -> list[str]:
    """The section; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = SearchResults.model_validate_json(path.read_text())
    moments = [results.seconds * share for share in MOMENTS]
    return [
        "## Searches",
        "",
        f"Run `make bench-tuning` to repeat this. {from_file(path)} {describe_machine(results.machine)}, "
        f"{results.threads} threads; load average {results.load_before:g} before and {results.load_after:g} "
        f"after. Each search had {results.seconds:g} s. Stock MetaSchedule has its own scheduler, builder, "
        "runner and cost model; it searches the model as TVM imports and fuses it, for as long.",
        "",
        "Estimated latency of the whole model over the time of the search, in milliseconds. Of stock "
        "MetaSchedule, it is known once each function has run. Its trials count when it joins their round: "
        "after the first rounds of all functions, which have 64 trials each:",
        "",
        *table(
            ("model", "", *(f"{moment:g} s" for moment in moments), "trials", "a minute"),
            [row for model in results.models for row in _curves(model, moments)],
        ),
        "",
        "Measured latency of the libraries, in milliseconds, and the compilation after the search, which "
        "uses its records:",
        "",
        *table(
            (
                "model",
                "without trials",
                "searched",
                "ratio",
                "best other runtime",
                "again",
                "its trials",
                "its seconds",
                "choices of the layout phase changed",
            ),
            [_row(model) for model in results.models],
        ),
        "",
    ]


def _curves(model: SearchedModel, moments: list[float]) -> list[tuple[str, ...]]:
    sides = (("Bessemer", model.ours), ("stock MetaSchedule", model.stock))
    return [
        (
            model.name,
            name,
            *(_at(side, moment) for moment in moments),
            str(side.trials),
            f"{side.trials_per_minute:.0f}",
        )
        for name, side in sides
        if side is not None
    ]


def _at(search: Search, moment: float) -> str:
    """The latency at a moment; the first point counts for the search's beginning."""
    reached = [point for index, point in enumerate(search.curve) if point.seconds <= moment]
    known = reached or (search.curve[:1] if search is not None and search.latency_ms is not None else [])
    return three_digits(known[-1].latency_ms) if known else ""


def _row(model: SearchedModel) -> tuple[str, ...]:
    searched = model.ours.latency_ms
    peer = "" if model.best_peer_ms is None else f"{model.best_peer} {three_digits(model.best_peer_ms)}"
    return (
        model.name,
        three_digits(model.untuned_ms),
        "" if searched is None else three_digits(searched),
        "" if searched is None else f"{searched / model.untuned_ms:.2f}",
        peer,
        three_digits(model.again_ms),
        str(model.again_trials),
        f"{model.again_seconds:.1f}",
        str(model.layouts_kept),
    )
