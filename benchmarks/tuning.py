"""Cost and benefit of 64 trials on the MLP."""

import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.figure import Figure, summarize
from bessemer.client import Client
from bessemer.contract.options import TuneOptions
from bessemer.contract.report import Report
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

TRIALS = 64
ROUNDS = 30
RUNS_PER_ROUND = 3000
AIM_SECONDS = 120.0
AIM_RATIO = 1.0


def measure_tuning(folder: Path) -> list[Figure]:
    """Compile the MLP with and without trials, and run both bundles in alternation."""
    model = folder / "mlp.pt2"
    save(EXAMPLES["mlp"], SavedAs.PT2, model)
    with local_service(folder / "tuning") as url, Client(url) as client:
        digest = client.upload(model).digest
        untuned = client.submit(digest, target="host", cache=False).wait().download(folder / "untuned")
        start = perf_counter()
        job = client.submit(digest, target="host", tune=TuneOptions(trials=TRIALS), cache=False).wait()
        seconds = perf_counter() - start
        tuned = job.download(folder / "tuned")
    rounds = [(median_ms(tuned, RUNS_PER_ROUND), median_ms(untuned, RUNS_PER_ROUND)) for _ in range(ROUNDS)]
    ratios = [ours / theirs for ours, theirs in rounds]
    return [
        summarize(f"MLP, {TRIALS} trials, POST to bundle", "s", [seconds], AIM_SECONDS),
        summarize(f"  tuned bundle / untuned bundle ({_kept(tuned)})", "ratio", ratios, AIM_RATIO),
        summarize("  tuned bundle, median of a process", "ms", [ours for ours, _ in rounds]),
        summarize("  untuned bundle, median of a process", "ms", [theirs for _, theirs in rounds]),
    ]


def median_ms(bundle: Path, runs: int) -> float:
    """The median latency of a bundle in a new process, which also checks its outputs."""
    command = [sys.executable, str(bundle / "run.py"), "--json", "--repeat", str(runs)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(answer.stdout)["p50_ms"])


def _kept(bundle: Path) -> str:
    """Which schedules the tuned bundle uses, from its report."""
    report = Report.model_validate_json((bundle / "report.json").read_text())
    return f"kept: {report.tune.kept}"
