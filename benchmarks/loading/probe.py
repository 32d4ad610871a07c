"""A process that loads the model in one runtime: ``python -m benchmarks.loading.probe NAME FOLDER THREADS``.

It prints a line after its runs, then waits for a line on standard input, so that two of them can run at once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS = 10

Call = Callable[[], object]
Load = Callable[[Path, int], Call]


def prepare_bundle(huge_pages: bool) -> Load:
    """Our bundle by ``run.py``."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    from bessemer.bundle.run import load

    def start(folder: Path, _threads: int) -> Call:
        model = load(folder / "bundle", huge_pages=huge_pages)
        return model.bind(model.reference_inputs())

    return start


def prepare_torch() -> Load:
    """torch eager, with weights mapped from the file."""
    import torch

    import benchmarks.loading.model as model

    model.Encoder()  # imports what unpickling needs

    def start(folder: Path, threads: int) -> Call:
        torch.set_num_threads(threads)
        loaded = torch.load(folder / "model.pt", mmap=True, weights_only=False)
        ids = model.ids()

        def call() -> Any:
            with torch.inference_mode():
                return loaded(ids)

        return call

    return start


def prepare_onnxruntime() -> Load:
    """ONNX Runtime with all optimizations."""
    import numpy as np
    import onnxruntime

    def start(folder: Path, threads: int) -> Call:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        (given,) = session.get_inputs()
        ids = np.load(folder / "ids.npy")
        return lambda: session.run(None, {given.name: ids})

    return start


PREPARES: dict[str, Callable[[], Load]] = {
    "bundle": lambda: prepare_bundle(huge_pages=False),
    "bundle-huge": lambda: prepare_bundle(huge_pages=True),
    "onnxruntime": prepare_onnxruntime,
    "torch": prepare_torch,
}


def main() -> None:
    """Load the model, run it, and print the measurements."""
    name, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    os.environ["TVM_NUM_THREADS"] = str(threads)
    start = PREPARES[name]()
    before = _status("VmRSS")
    began = time.perf_counter()
    call = start(folder, threads)
    ready = time.perf_counter() - began
    runs = []
    for _ in range(RUNS):
        began = time.perf_counter()
        call()
        runs.append((time.perf_counter() - began) * 1e3)
    peak = _status("VmHWM") - before
    print(json.dumps({"ready_ms": ready * 1e3, "runs_ms": runs, "peak_bytes": peak}), flush=True)
    sys.stdin.readline()


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main()
