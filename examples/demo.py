"""Starts a service and compiles two trained networks: ``make demo``."""

import shutil
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bessemer import BessemerError, Client, TuneOptions
from bessemer.contract.job import Compilation, Event, EventType
from examples.local_service import ROOT, local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

OUTPUT = ROOT / "demo-output"
TRIALS = 16
MODELS = ("mlp", "cnn")


class Display:
    """A progress bar that follows a compilation's events."""

    def __init__(self, progress: Progress, task: TaskID, name: str) -> None:
        self._progress = progress
        self._task = task
        self._name = name

    def show(self, event: Event) -> None:
        """Advance the bar by trials while tuning, and by stages otherwise."""
        if event.type is EventType.STAGE_STARTED:
            description = f"{self._name}: {event.data['stage']}"
            self._progress.update(self._task, description=description, completed=0, total=None)
        if event.type is EventType.PROGRESS:
            self._progress.update(self._task, completed=event.data["done"], total=event.data["total"] or None)


def main() -> int:
    """Start the service, compile each model, print its figures, stop the service."""
    console = Console(soft_wrap=True)  # don't wrap lines that users copy
    shutil.rmtree(OUTPUT, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="bessemer-demo-") as folder:
        console.print("starting app and worker …")
        with local_service(Path(folder) / "data") as url, Client(url) as client:
            for name in MODELS:
                try:
                    document = _compile(client, name, Path(folder), console)
                except BessemerError as error:
                    console.print(f"[bold red]{name}: {error}")
                    return 1
                _print(console, name, document)
    console.print("app and worker have stopped; run a bundle with")
    for name in MODELS:
        console.print(f"  [bold].venv/bin/python {(OUTPUT / name / 'run.py').relative_to(ROOT)}")
    return 0


def _compile(client: Client, name: str, folder: Path, console: Console) -> Compilation:
    model = folder / f"{name}.pt2"
    save(EXAMPLES[name], SavedAs.PT2, model)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        display = Display(progress, progress.add_task(name, total=None), name)
        job = client.submit(model, target="host", tune=TuneOptions(trials=TRIALS))
        job.wait(on_event=display.show).download(OUTPUT / name)
    return job.document


def _print(console: Console, name: str, document: Compilation) -> None:
    figures = document.figures
    assert figures is not None
    (torch_eager,) = figures.baselines
    console.print(
        f"[bold]{name}[/]: [bold green]verified[/] (largest error {figures.max_absolute_error:.1e}), "
        f"p50 {figures.latency.p50_ms:.3f} ms, torch eager {torch_eager.latency.p50_ms:.3f} ms "
        f"(ratio {torch_eager.ratio:.2f}), bundle in {OUTPUT / name}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
