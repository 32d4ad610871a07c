"""Bind loops to the threads of a GPU: a sum of vectors, and a sum of neighbors staged in shared memory."""

from __future__ import annotations

from pathlib import Path

from bessemer.client import Client
from examples.course.session import compiled_for_gpu, run, shown_usage

PROGRAMS = Path(__file__).parent / "programs"


def show(client: Client, folder: Path) -> None:
    """Compile both programs, which keep their threads; each block of the second stages its input once."""
    for name, shared_bytes in (("vector_add", 0), ("window_sum", (128 + 2) * 4)):
        job = compiled_for_gpu(client, PROGRAMS / f"gpu_{name}.py")
        (kernel,) = job.report().gpu_kernels
        loops = [line for line in job.ir_text("tune").splitlines() if "T.thread_binding(" in line]
        print(f"{name}: {shown_usage(job)}", *loops, sep="\n")
        assert any("blockIdx.x" in line for line in loops)
        assert (kernel.shared_bytes, kernel.spilled_bytes) == (shared_bytes, 0)


if __name__ == "__main__":
    run(show)
