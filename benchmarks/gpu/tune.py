"""Tunes models on this machine's GPU: ``python -m benchmarks.gpu.tune FOLDER resnet50-32-bf16 … --trials N``.

The folder ``cases`` gets the bundle of each case without trials, ``tuned`` that of its search, which
``benchmarks.gpu.measure`` then times in turns. Beside a tuned bundle are the search's log, its records and
``NAME.json``, its result. Each case has a process of its own; those that search at the same time measure in
turns. A case that fails is printed, and the next one follows.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import Case, parse
from benchmarks.gpu.prepare import compile_case, target_of
from bessemer.contract.stage import Stage
from worker.job.warmup import import_everything
from worker.measure.gpus import gpus_here
from worker.protocol.observer import JobObserver

_PRINT_SECONDS = 5.0


@dataclass
class Printed(JobObserver):
    """Prints stages, and progress every few seconds."""

    name: str
    started: float = field(default_factory=time.perf_counter)
    _last: float = 0.0

    def stage_finished(self, stage: Stage, seconds: float) -> None:
        """See ``JobObserver``."""
        if seconds >= 1.0:
            self._print(f"{stage.value}: {seconds:.1f} s")

    def progress(self, stage: Stage, done: int, total: int, detail: str, estimate: Any = None) -> None:
        """See ``JobObserver``."""
        if stage is Stage.TUNE and time.perf_counter() - self._last >= _PRINT_SECONDS:
            self._last = time.perf_counter()
            self._print(f"{stage.value}: {done} of {total} {detail}")

    def _print(self, text: str) -> None:
        print(f"  {self.name} {time.perf_counter() - self.started:6.1f} s  {text}", flush=True)


class LockedTurns:
    """Turns by a locked file, for processes that measure on one GPU."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._depth = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """See ``Turns.turn``."""
        self._depth += 1
        try:
            if self._depth > 1:
                yield
                return
            with self._path.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        finally:
            self._depth -= 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="+", type=parse)
    parser.add_argument("--trials", type=int, default=64, help="for each case")
    parser.add_argument("--seconds", type=float, default=60.0, help="of searching, for each case")
    parser.add_argument("--search", choices=("both", "plans", "metaschedule"), default="both")
    parser.add_argument("--at-once", type=int, default=1, help="how many cases search at the same time")
    parser.add_argument("--arch", help="such as sm_90; this machine's GPU by default")
    chosen = parser.parse_args()
    import_everything()
    found = gpus_here()
    for gpu in found:
        print(f"{gpu.name} ({gpu.arch}), driver for CUDA {gpu.cuda}", flush=True)
    chosen.arch = chosen.arch or (found[0].arch if found else "sm_90")
    if not target_of(chosen.arch).has_gpu:
        print(
            f"no GPU here runs code for {chosen.arch} with this driver: nothing will be measured", flush=True
        )
    _in_processes(chosen)


def _in_processes(chosen: argparse.Namespace) -> None:
    """Tune each case in a forked process, some at a time."""
    forking, waiting = multiprocessing.get_context("fork"), list(chosen.cases)
    running: list[Any] = []
    while waiting or running:
        running = [process for process in running if process.is_alive()]
        while waiting and len(running) < chosen.at_once:
            running.append(forking.Process(target=_tune, args=(waiting.pop(0), chosen)))
            running[-1].start()
        time.sleep(0.1)


def _tune(case: Case, chosen: argparse.Namespace) -> None:
    target, tuned = target_of(chosen.arch), chosen.folder / "tuned" / case.name
    options = {"trials": chosen.trials, "seconds": chosen.seconds, "search": chosen.search}
    tuned.parent.mkdir(parents=True, exist_ok=True)
    observer = Printed(case.name)
    try:
        compile_case(case, target, chosen.folder / "cases" / case.name)
        compile_case(case, target, tuned, options, observer, LockedTurns(chosen.folder / "lock"))
    except Exception:
        traceback.print_exc()
        return
    result = json.loads((tuned / "report.json").read_text(encoding="utf-8"))["tune"]
    result["wall_seconds"] = time.perf_counter() - observer.started
    tuned.with_name(f"{case.name}.json").write_text(json.dumps(result), encoding="utf-8")
    print("\n".join([f"{case.name}:", *_lines(result)]), flush=True)


def _lines(tuned: dict[str, Any]) -> list[str]:
    """The search's result for people."""
    lines = [
        f"  {tuned['trials']} trials, ended by {tuned['ended_by']}, kept {tuned['kept']}: "
        f"search {tuned['search_ms']} ms, default {tuned['default_ms']} ms"
    ]
    for task in tuned["tasks"]:
        default, found = task["default_ms"], task["found_ms"]
        ratio = f" {default / found:.2f}x" if default and found else ""
        failed = f", {task['failed']} failed ({str(task['failure'])[:120]})" if task["failed"] else ""
        spaces = ", ".join(f"{one['name']} {one['trials']} {one['best_ms']}" for one in task["spaces"])
        name = f"{task['name'][:60]} x{task['weight']}"
        lines.append(f"  {name}: default {default}, best {found}{ratio} [{spaces}]{failed}")
    return lines


if __name__ == "__main__":
    main()
