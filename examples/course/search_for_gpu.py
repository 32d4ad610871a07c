"""Let a search write a product's loops for a GPU: from the families' plans, and in a hand-written space."""

from __future__ import annotations

from pathlib import Path

from bessemer import TuneOptions
from bessemer.client import Client
from bessemer.contract.options import SearchEnd
from bessemer.contract.request import CompilationRequest, Verification
from bessemer.contract.target import PresetTarget
from examples.course.session import GPU, run, shown_usage
from examples.extensions import gpu_tiles

PROGRAM = Path(__file__).parent / "programs" / "gpu_product.py"
SPACE = Path(gpu_tiles.__file__)
TRIALS = 16
SEARCHES = {
    "plans": TuneOptions(trials=TRIALS, search="plans"),
    "gpu-tiles": TuneOptions(trials=TRIALS, spaces={"product": "gpu-tiles"}),
}


def show(client: Client, folder: Path) -> None:
    """Search twice. Where no worker has a GPU, both searches return the cost model's first plan."""
    for name, tune in SEARCHES.items():
        request = CompilationRequest(
            model=client.upload(PROGRAM).digest,
            target=PresetTarget(preset=GPU),
            verification=Verification.NONE,
            tune=tune,
            extensions=(client.upload_extension(SPACE).digest,) if tune.spaces else (),
        )
        job = client.post(request).wait()
        found = job.report().tune
        assert found is not None
        print(f"{name}: {shown_usage(job)}")
        if found.ended_by is SearchEnd.NO_GPU:
            print("  no GPU measured anything: the cost model's first plan")
            continue
        (task,) = found.tasks
        print(f"  {task.trials} trials in {task.space}: {task.found_ms} ms, the default {task.default_ms} ms")
        assert (task.name, task.space, task.trials) == ("product", name, TRIALS)


if __name__ == "__main__":
    run(show)
