"""Latency over the time of a search, beside stock MetaSchedule: ``make bench-tuning``.

Each model is compiled without trials, searched for ``--seconds``, and compiled again without trials, which
uses the records of the search. Then the bundles run in turns; those with the same library share its time.
Last, stock MetaSchedule searches the same model for as long.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

from benchmarks.machine import describe
from benchmarks.searching.page import TOPIC
from benchmarks.searching.results import Point, Search, SearchedModel, SearchResults
from benchmarks.tuning import median_ms
from bessemer.client import Client
from bessemer.contract.options import BenchmarkOptions, TuneOptions
from bessemer.contract.report import Report
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

RESULTS = Path(__file__).parents[1] / "results"
MODELS = ("resnet18", "mobilenet_v2", "bert", "unet")
SECONDS = 120.0
ROUNDS = 10
RUN_SECONDS = 0.5
"""How long a bundle runs in one turn."""
MIN_RUNS = 10
START_SECONDS = 300.0
"""How long stock MetaSchedule may take until its search begins."""


def main() -> None:
    """Measure each model, print it, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(sorted(EXAMPLES)))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a search")
    parser.add_argument("--without-stock", action="store_true", help="do not search with stock MetaSchedule")
    parser.add_argument("--compare", action="store_true", help="time other installed runtimes, too")
    parser.add_argument("--output", type=Path, help="the file to write instead of one by date")
    arguments = parser.parse_args()
    load_before, models = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory(prefix="bessemer-searches-") as name:
        folder = Path(name)
        with local_service(folder / "service") as url, Client(url) as client:
            for model in arguments.models or MODELS:
                found = _ours(client, model, arguments.seconds, folder, arguments.compare)
                if not arguments.without_stock:
                    found.stock = _stock(model, arguments.seconds, folder / f"stock-{model}")
                models.append(found)
                print(shown(found), flush=True)
    results = SearchResults(
        machine=describe(()),
        measured_at=datetime.now(UTC),
        load_before=round(load_before, 2),
        load_after=round(os.getloadavg()[0], 2),
        seconds=arguments.seconds,
        threads=len(os.sched_getaffinity(0)),
        models=models,
    )
    path = arguments.output or RESULTS / f"{results.measured_at:%Y-%m-%d}-{TOPIC}.json"
    path.write_text(results.model_dump_json(indent=1) + "\n")
    print(f"written to {path}")


def shown(found: SearchedModel) -> str:
    """A model in lines."""
    ours, stock = found.ours, found.stock
    lines = [
        f"{found.name}: {found.untuned_ms:.3g} ms without trials, {ours.latency_ms:.3g} ms after "
        f"{ours.trials} trials in {ours.seconds:.0f} s ({ours.trials_per_minute:.0f} a minute, "
        f"{found.layouts_kept} choices of the layout phase changed)",
        f"  again: {found.again_trials} trials, {found.again_seconds:.1f} s, {found.again_ms:.3g} ms",
    ]
    if stock is not None:
        latency = f"{stock.curve[-1].latency_ms:.3g} ms" if stock.curve else "some functions never ran"
        lines.append(
            f"  stock MetaSchedule: {latency} after {stock.trials} trials in {stock.seconds:.0f} s "
            f"({stock.trials_per_minute:.0f} a minute)"
        )
    return "\n".join(lines)


def _ours(client: Client, name: str, seconds: float, folder: Path, compare: bool) -> SearchedModel:
    path = folder / f"{name}.pt2"
    save(EXAMPLES[name], SavedAs.PT2, path)
    digest = client.upload(path).digest
    untuned = _compiled(client, digest, TuneOptions(from_records=False), False, folder / f"{name}-untuned")
    searched = _compiled(client, digest, TuneOptions(seconds=seconds), compare, folder / f"{name}-searched")
    again = _compiled(client, digest, TuneOptions(), False, folder / f"{name}-again")
    untuned_ms, searched_ms, again_ms = _latencies_ms(untuned, searched, again)
    tune = searched.report.tune
    peers = {} if tune.estimate is None else tune.estimate.peers_ms
    best = min(peers, key=lambda peer: peers[peer], default="")
    return SearchedModel(
        name=name,
        untuned_ms=untuned_ms,
        ours=Search(
            trials=tune.trials,
            seconds=tune.seconds,
            trials_per_minute=0.0 if tune.shares is None else tune.shares.trials_per_minute,
            curve=[Point(seconds=point.seconds, latency_ms=point.latency_ms) for point in tune.curve],
            latency_ms=searched_ms,
        ),
        again_trials=again.report.tune.trials,
        again_seconds=again.seconds,
        again_ms=again_ms,
        layouts_kept=len([trial for trial in tune.layouts if trial.kept]),
        best_peer=best,
        best_peer_ms=peers.get(best),
    )


class _Compiled(NamedTuple):
    """A bundle, its report, and the seconds from the request to the result."""

    bundle: Path
    report: Report
    seconds: float


def _compiled(client: Client, digest: str, options: TuneOptions, compare: bool, folder: Path) -> _Compiled:
    began = monotonic()
    benchmark = BenchmarkOptions(compare=compare)
    job = client.submit(digest, target="host", tune=options, benchmark=benchmark, cache=False).wait()
    seconds = monotonic() - began
    return _Compiled(job.download(folder), job.report(), seconds)


def _latencies_ms(*sides: _Compiled) -> list[float]:
    """The median latency of each bundle. The bundles run in turns, in another order in every other round.

    Equal libraries are timed once: where the machine is busy, two series of runs of one library may differ by
    a seventh.
    """
    benchmark = sides[0].report.benchmark
    assert benchmark is not None
    runs = max(MIN_RUNS, int(RUN_SECONDS * 1e3 / benchmark.latency.p50_ms))
    digests = [sha256((side.bundle / "model.so").read_bytes()).hexdigest() for side in sides]
    bundles = {digest: side.bundle for digest, side in zip(digests, sides, strict=True)}
    times: dict[str, list[float]] = {digest: [] for digest in bundles}
    order = list(bundles)
    for _ in range(ROUNDS):
        for digest in order:
            times[digest].append(median_ms(bundles[digest], runs))
        order.reverse()
    return [median(times[digest]) for digest in digests]


def _stock(name: str, seconds: float, folder: Path) -> Search:
    """Let stock MetaSchedule search for so long, then kill it."""
    folder.mkdir()
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.searching.stock", name, str(folder)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        try:
            lines = list(_lines(process, seconds))
        finally:
            os.killpg(process.pid, 9)
            process.wait()
    last = lines[-1] if lines else {"trials": 0, "seconds": seconds}
    return Search(
        trials=last["trials"],
        seconds=last["seconds"],
        trials_per_minute=60 * last["trials"] / max(last["seconds"], 1e-9),
        curve=[
            Point(seconds=line["seconds"], latency_ms=line["latency_ms"])
            for line in lines
            if line["latency_ms"]
        ],
    )


def _lines(process: subprocess.Popen[bytes], seconds: float) -> Iterator[dict[str, Any]]:
    """What it prints until the time is over, which begins with its first line."""
    import select

    assert process.stdout is not None
    deadline, began = monotonic() + START_SECONDS, False
    while (left := deadline - monotonic()) > 0:
        if not select.select([process.stdout], [], [], left if left < inf else None)[0]:
            return
        text = process.stdout.readline()
        if not text:
            return
        if not text.startswith(b"{"):
            continue
        line = json.loads(text)
        if not began:
            began, deadline = True, monotonic() + seconds
        elif line["seconds"] <= seconds:
            yield line


if __name__ == "__main__":
    main()
