"""The decoder's part of docs/figures.md."""

from __future__ import annotations

from pathlib import Path

from benchmarks.decoder.results import CaseResult, Clock, DecoderResults, RuntimeResult
from benchmarks.models.results import State
from benchmarks.tables import describe_machine, from_file, newest, table
from bessemer.figures.words import TIMES, three_digits

TOPIC = "decoder"


def section(folder: Path) -> list[str]:
    """The section; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return []
    results = DecoderResults.model_validate_json(path.read_text())
    measured = [one for one in results.runtimes if one.cases]
    titles = [result.case.title for result in measured[0].cases] if measured else []
    packages = ", ".join(f"{name} {version}" for name, version in sorted(results.machine.versions.items()))
    weights_gib = 4 * results.parameters / 2**30
    read_gib = results.read_gb_per_second * 1e9 / 2**30
    return [
        "## A decoder",
        "",
        f"Run `make bench-decoder` to repeat this. {from_file(path)} {describe_machine(results.machine)}, "
        f"{results.threads} thread{'s' if results.threads > 1 else ''}, float32, one sequence; load average "
        f"{results.load_before:g} before and {results.load_after:g} after; {packages}.",
        "",
        f"A Llama of {results.parameters / 1e6:.0f} million parameters with random weights and a cache of "
        f"{results.max_length} tokens. Every runtime has a process of its own. Their first 40 greedy tokens "
        "are those of transformers' `generate`, and their logits differ by less than 10⁻³ of their range. "
        f"They take {results.rounds} turns: A B C A B C …. Each entry is tokens per second by the median of "
        f"all runs{_clock(results)}; in parentheses, the median of the ratio of our time and the peer's in "
        "the same round, with its 10th and 90th percentile: below 1, Bessemer is faster.",
        "",
        *table(("runtime", *titles), [_row(one, titles) for one in measured]),
        "",
        f"A step of decoding reads all weights: {weights_gib:.2f} GiB. Reading an array of this size, on "
        f"small pages, with as many threads reached {read_gib:.1f} GiB/s: {read_gib / weights_gib:.1f} per "
        f"second. The fastest steps were, in tokens per second: {_best(measured)}.",
        "",
        *(f"- {one.name}: {one.form}{_note(one)}." for one in results.runtimes),
        "",
    ]


def _clock(results: DecoderResults) -> str:
    if results.clock is Clock.WALL:
        return ""
    return " and by the process's processor time, as the machine was busy"


def _row(runtime: RuntimeResult, titles: list[str]) -> tuple[str, ...]:
    found = {result.case.title: result for result in runtime.cases}
    return (runtime.name, *(_entry(found.get(title)) for title in titles))


def _entry(result: CaseResult | None) -> str:
    if result is None:
        return ""
    speed = three_digits(result.tokens_per_second)
    if result.ratio is None:
        return speed
    low, middle, high = (
        f"{ratio:.2f}" for ratio in (result.ratio.p10, result.ratio.median, result.ratio.p90)
    )
    return f"{speed} ({middle}{TIMES}, {low} to {high})"


def _best(runtimes: list[RuntimeResult]) -> str:
    """The fastest step of each runtime at the first position."""
    steps = [(one.name, next(case for case in one.cases if case.case.tokens == 1)) for one in runtimes]
    return ", ".join(f"{name} {three_digits(step.best_tokens_per_second)}" for name, step in steps)


def _note(runtime: RuntimeResult) -> str:
    return f"; {runtime.state.value}: {runtime.note}" if runtime.state is not State.MEASURED else ""
