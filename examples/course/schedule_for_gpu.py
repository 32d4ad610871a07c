"""Schedule a matrix product for a GPU in steps, from one thread per element to tensor cores."""

from __future__ import annotations

from pathlib import Path

from bessemer.client import Client
from examples.course.session import compiled_for_gpu, run, shown_usage
from examples.extensions import gpu_product_steps

SCHEDULES = Path(gpu_product_steps.__file__)
STEPS = ("bound", "registers", "shared", "vectors", "tensor_cores")
SIZE = 1024


def show(client: Client, folder: Path) -> None:
    """Compile the product with the schedule of each step."""
    for step in STEPS:
        program = folder / f"{step}.py"
        module = f"scheduled({step}, {SIZE}, {SIZE}, {SIZE})"
        program.write_text(f"{SCHEDULES.read_text()}\n\nModule = {module}\n")
        job = compiled_for_gpu(client, program)
        (kernel,) = job.report().gpu_kernels
        print(f"{step}: {shown_usage(job)}")
        assert kernel.spilled_bytes == 0
        assert (kernel.shared_bytes > 0) == (step not in ("bound", "registers"))


if __name__ == "__main__":
    run(show)
