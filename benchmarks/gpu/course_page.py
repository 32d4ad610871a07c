"""The table of the course's products on a GPU, from the newest results of ``measure_products``."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.tables import from_file, newest, table

RESULTS = Path(__file__).parents[1] / "results"
TOPIC = "gpu-course"
PEAK_TFLOPS = {"float32": 67.0, "float16": 989.0}
"""The peak rates of an H100 SXM and an H200, without sparsity. Source: NVIDIA's data sheets."""


def section(folder: Path = RESULTS) -> str:
    """The table with its introduction; empty without results."""
    path = newest(folder, TOPIC)
    if path is None:
        return ""
    found = sorted(json.loads(path.read_text()), key=lambda one: one["shape"]["rows"])
    sizes = sorted({int(one["shape"]["rows"]) for one in found})
    cells: dict[str, list[str]] = {}
    for one in found:
        shape = one["shape"]
        work = 2e-9 * shape["rows"] * shape["columns"] * shape["depth"]
        for name, plan in one["plans"].items():
            rate = work / plan["ms"]
            shares = (rate / PEAK_TFLOPS[shape["dtype"]], one["cublas_ms"] / plan["ms"])
            cells.setdefault(name, []).append(f"{rate:.3g}; {shares[0]:.0%}; {shares[1]:.0%}")
    ordered = sorted(cells.items(), key=lambda item: float(item[1][-1].split(";")[0]))
    rows = [(f"`{name}`", *shown) for name, shown in ordered]
    introduction = (
        f"{from_file(path)} TFLOP/s on an H200; share of the peak; share of the speed of cuBLAS. "
        "cuBLAS writes float16 where the factors are float16.\n\n"
    )
    return introduction + "\n".join(table(("step", *map(str, sizes)), rows)) + "\n"
