"""A live table of results above a progress bar."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.models.results import ModelResult, SideResult, mean_ratio, mean_ratio_to_best
from bessemer.figures.words import duration


class Display:
    """Shows the current step, and each model once it is measured."""

    def __init__(self, console: Console, peers: tuple[str, ...], steps: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = console
        self._peers = peers
        self._models: list[ModelResult] = []
        self._progress = Progress(*columns, console=console, auto_refresh=False)
        self._task = self._progress.add_task("", total=steps)
        # No refresh thread, because this process forks.
        self._live = Live(self._view(), console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(self._view(), refresh=True)
        self._live.stop()
        self._console.print()

    def doing(self, what: str) -> None:
        """Show the current step, as lines without a terminal."""
        if not self._console.is_terminal:
            self._console.print(what)
        self._progress.update(self._task, description=what)
        self._live.update(self._view(), refresh=True)

    def advance(self) -> None:
        """Advance by one step."""
        self._progress.advance(self._task)
        self._live.update(self._view(), refresh=True)

    def show(self, model: ModelResult) -> None:
        """Add a model to the table."""
        self._models.append(model)
        self._live.update(self._view(), refresh=True)

    def _view(self) -> Group:
        return Group(model_table(self._models, self._peers), self._progress)


def model_table(models: list[ModelResult], peers: tuple[str, ...]) -> Table:
    """One row per model: our median and best; the peers' medians and our ratios to them, p10 to p90."""
    table = Table("model", "ours", *peers)
    for model in models:
        sides = {side.name: side for side in model.peers}
        table.add_row(model.name, _times(model.ours), *(_cell(sides.get(peer)) for peer in peers))
    if models:
        means = (mean_ratio(models, peer) for peer in peers)
        cells = ("" if mean is None else f"{mean:.2f}" for mean in means)
        table.add_row("[bold]geometric\nmean", _best_mean(models), *cells)
    return table


def _best_mean(models: list[ModelResult]) -> str:
    mean = mean_ratio_to_best(models)
    return "" if mean is None else f"{mean:.2f} of the\nbest peer"


def _cell(side: SideResult | None) -> str:
    if side is None:
        return ""
    if side.latency is None or side.ratio is None:
        return f"[dim]{side.state}"
    color = "green" if side.ratio.median <= 1 else "red"
    spread = f"\n[dim]{side.ratio.p10:.2f}-{side.ratio.p90:.2f}" if side.rounds > 1 else ""
    return f"{duration(side.latency.p50_ms)}\n[{color}]{side.ratio.median:.2f}[/]{spread}"


def _times(side: SideResult) -> str:
    if side.latency is None:
        return f"[red]{side.state}[/]: {side.note}"
    return f"{duration(side.latency.p50_ms)}\n[dim]{duration(side.latency.min_ms)}"
