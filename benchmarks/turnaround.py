"""Time from POST to a downloaded bundle for the MLP, with each stage's share."""

from pathlib import Path
from statistics import median
from time import perf_counter

import httpx

from benchmarks.figure import Figure, summarize
from bessemer.client import Client
from bessemer.contract.job import Compilation
from examples.local_service import local_service
from examples.models import EXAMPLES
from examples.models.save import SavedAs, save

ROUNDS = 12
WARM_UP_ROUNDS = 2
AIM_SECONDS = 2.0


def measure_turnaround(folder: Path) -> list[Figure]:
    """Compile the MLP repeatedly on a running service."""
    model = folder / "mlp.pt2"
    save(EXAMPLES["mlp"], SavedAs.PT2, model)
    with local_service(folder / "turnaround") as url, Client(url) as client:
        digest = client.upload(model).digest
        rounds = [_round(client, url, digest) for _ in range(WARM_UP_ROUNDS + ROUNDS)][WARM_UP_ROUNDS:]
    return [
        summarize("MLP, POST to downloaded bundle", "s", [seconds for seconds, _ in rounds], AIM_SECONDS),
        *_stage_figures([compilation for _, compilation in rounds]),
    ]


def _round(client: Client, url: str, digest: str) -> tuple[float, Compilation]:
    start = perf_counter()
    job = client.submit(digest, target="host", cache=False).wait()
    address = f"{url}/v1/compilations/{job.document.id}/artifacts/bundle.tar.zst"
    httpx.get(address).raise_for_status()
    return perf_counter() - start, job.document


def _stage_figures(compilations: list[Compilation]) -> list[Figure]:
    stages = [time.stage for time in compilations[0].stages]
    seconds = {
        stage: [time.seconds for one in compilations for time in one.stages if time.stage is stage]
        for stage in stages
    }
    whole = sum(median(samples) for samples in seconds.values())
    return [
        summarize(f"  {stage} ({median(samples) / whole:.0%} of the stages)", "s", samples)
        for stage, samples in seconds.items()
    ]
