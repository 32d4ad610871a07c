"""The section of ``docs/figures.md`` on GPUs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.gpu.results import TOPIC, KernelResults
from benchmarks.tables import from_file, newest, table
from bessemer.figures.words import percent, three_digits

_OURS, _TUNED = "Bessemer", "Bessemer, tuned"
_PEERS = ("torch eager", "torch, CUDA graph", "torch.compile(max-autotune)")
_SHOWN_FUNCTIONS = 3
_MATCHING = 0.02
_TIB_PER_TB = 1e12 / 2**40


def section(folder: Path) -> list[str]:
    """The newest results on a GPU, and what kernels use; empty without any."""
    path = newest(folder, "gpu")
    if path is None:
        return []
    return [*_measured(path), *_assembled(newest(folder, TOPIC))]


def _assembled(path: Path | None) -> list[str]:
    """What the assembler says of the kernels of models."""
    if path is None:
        return []
    results = KernelResults.model_validate_json(path.read_text())
    return [
        "### What kernels use",
        "",
        f"Run `make bench-gpu-kernels` to repeat this; it needs no GPU. {from_file(path)} ptxas "
        f"{results.machine.versions['nvidia-cuda-nvcc']}. The most that a kernel of the model uses; a kernel "
        "spills if it has too few registers.",
        "",
        *table(
            ("case", "architecture", "kernels", "registers", "static shared memory", "kernels that spill"),
            [
                (
                    one.case,
                    one.arch,
                    str(one.kernels),
                    str(one.registers),
                    f"{one.shared_bytes / 1024:.1f} KiB",
                    f"{len(one.spilling)}, up to {one.spilled_bytes} bytes" if one.spilling else "none",
                )
                for one in results.models
            ],
        ),
        "",
    ]


def _measured(path: Path) -> list[str]:
    results = json.loads(path.read_text())
    machine, cases = results["machine"], [case for case in results["cases"] if "times" in case]
    peers = tuple(peer for peer in _PEERS if any(peer in case["times"] for case in cases))
    failed = [case for case in results["cases"] if "times" not in case]
    gpu, driver = machine["gpu"].split(", ")[:2]
    date = path.stem.removesuffix("-gpu")
    return [
        "## On a GPU",
        "",
        "Run `make bench-gpu` where the compiler is, and the command that it prints where the GPU is, to "
        f"repeat this. Results of [{date}](../benchmarks/results/{path.name}): {gpu}, driver {driver}, torch "
        f"{machine['torch']}. It makes products at {three_digits(machine['bfloat16_tflops'])} TFLOP/s in "
        f"bfloat16 and {three_digits(machine['float32_tflops'])} in float32 (cuBLAS, 8192 cubed), and copies "
        f"{three_digits(machine['terabytes_per_second'] * _TIB_PER_TB)} TiB/s.",
        "",
        "Milliseconds of one run by events, the median of 200 in ten turns with the others; `cold` is after "
        "the second-level cache was overwritten. No trials. Weights are random. The ratio is to the fastest "
        "other. Errors are relative to float64 on the GPU, as root mean squares of the first output. The "
        "verdict is that of the outputs beside torch's on the processor, by the tolerance of verification.",
        "",
        *table(
            ("model", "batch", "precision", _OURS, "cold", *peers, "ratio", "error", "torch's", "verdict"),
            [_row(case, peers) for case in cases],
        ),
        "",
        *_means(cases),
        *(f"- {case['case']} failed: {case['error'].strip()} ({case.get('note', '')})" for case in failed),
        "",
        "In float32, torch multiplies the factors of convolutions in tf32, with 10 bits of mantissa, which "
        "shows in its error; Bessemer's are exact. In tf32, both multiply all factors so "
        "(`optimize.float32_products=tf32`).",
        "",
        *_tuned_section(cases, peers),
        "### Products",
        "",
        "Milliseconds of a product of row-major matrices, one of ten in a graph, by the plan that the "
        "compiler chooses without trials and by the best of the measured ones, beside cuBLAS:",
        "",
        *table(
            ("rows x columns x depth", "dtype", "cuBLAS", "TFLOP/s", "chosen plan", "of cuBLAS", "best plan"),
            [_product(one) for one in results["products"]],
        ),
        "",
        "### Kernels",
        "",
        "The functions that take longest, and what share of this GPU's fastest product or copy they reach, "
        "whichever is larger (tensor cores multiply tf32 at half the rate of bfloat16):",
        "",
        *table(
            ("model", "function", "calls", "one call, us", "TFLOP/s", "TiB/s", "share"),
            [row for case in cases for row in _functions(case, machine)],
        ),
        "",
    ]


def _parts(case: dict[str, Any]) -> tuple[str, str, str]:
    model, batch, precision = case["case"].rsplit("-", 2)
    return model, batch, precision


def _ratio(case: dict[str, Any], ours: str = _OURS) -> float:
    times = case["times"]
    return float(times[ours]["warm_ms"]) / min(times[peer]["warm_ms"] for peer in _PEERS if peer in times)


def _row(case: dict[str, Any], peers: Sequence[str]) -> tuple[str, ...]:
    times = case["times"]
    theirs = (three_digits(times[peer]["warm_ms"]) if peer in times else "" for peer in peers)
    ours = (three_digits(times[_OURS]["warm_ms"]), three_digits(times[_OURS]["cold_ms"]))
    errors = (f"{case['errors'][side]:.1e}" for side in ("ours", "torch"))
    return (*_parts(case), *ours, *theirs, f"{_ratio(case):.2f}", *errors, case["verdict"])


def _means(cases: list[dict[str, Any]]) -> list[str]:
    lines = []
    for batch, precision in sorted({_parts(case)[1:] for case in cases}):
        group = [case for case in cases if _parts(case)[1:] == (batch, precision)]
        count = "1 model" if len(group) == 1 else f"{len(group)} models"
        mean = f"**{_mean(group, _OURS):.2f}** ({count})"
        lines.append(f"- batch {batch}, {precision}: the geometric mean of the ratios is {mean}")
    return lines


def _tuned_section(cases: list[dict[str, Any]], peers: Sequence[str]) -> list[str]:
    """The models whose tuned library was timed in turns with the one without trials."""
    tuned = [case for case in cases if _TUNED in case["times"]]
    if not tuned:
        return []
    return [
        "### Tuned",
        "",
        "The same model after a search on this GPU, in turns with the library without trials and with torch:",
        "",
        *table(
            ("model", "batch", "precision", "trials", "tuned", "no trials", *peers, "ratio", "of no trials"),
            [_tuned_row(case, peers) for case in tuned],
        ),
        "",
        f"- the geometric mean of the ratios to the fastest other is **{_mean(tuned, _TUNED):.2f}**; without "
        f"trials, that of the same models is {_mean(tuned, _OURS):.2f}",
        "",
    ]


def _tuned_row(case: dict[str, Any], peers: Sequence[str]) -> tuple[str, ...]:
    times = case["times"]
    shown = (
        three_digits(times[side]["warm_ms"]) if side in times else "" for side in (_TUNED, _OURS, *peers)
    )
    gain = times[_TUNED]["warm_ms"] / times[_OURS]["warm_ms"]
    trials = str(case.get("trials", ""))
    return (*_parts(case), trials, *shown, f"{_ratio(case, _TUNED):.2f}", f"{gain:.2f}")


def _mean(cases: Sequence[dict[str, Any]], ours: str) -> float:
    return exp(sum(log(_ratio(case, ours)) for case in cases) / len(cases))


def _product(found: dict[str, Any]) -> tuple[str, ...]:
    shape, cublas = found["shape"], found["cublas_ms"]
    plans = {name: plan for name, plan in found["plans"].items() if plan["error"] < _MATCHING}
    first = plans.get("plan0", {"ms": None})["ms"]
    best = min((plan["ms"] for plan in plans.values()), default=None)
    work = 2e-9 * shape["rows"] * shape["columns"] * shape["depth"]
    return (
        f"{shape['rows']} x {shape['columns']} x {shape['depth']}",
        shape["dtype"],
        three_digits(cublas),
        three_digits(work / cublas),
        "" if first is None else three_digits(first),
        "" if first is None else percent(cublas / first),
        "" if best is None else percent(cublas / best),
    )


def _tflops(precision: str, machine: dict[str, Any]) -> float:
    """The rate of the fastest product."""
    if precision == "f32":
        return float(machine["float32_tflops"])
    return float(machine["bfloat16_tflops"]) / (2 if precision == "tf32" else 1)


def _functions(case: dict[str, Any], machine: dict[str, Any]) -> list[tuple[str, ...]]:
    measured = [one for one in case.get("functions", ()) if one["ms"] > 0]
    measured.sort(key=lambda one: -one["ms"] * one["calls"])
    ceiling = _tflops(_parts(case)[2], machine)
    rows = []
    for one in measured[:_SHOWN_FUNCTIONS]:
        rate, moved = one["flops"] * 1e-9 / one["ms"], one["moved_bytes"] * 1e-9 / one["ms"]
        share = max(rate / ceiling, moved / machine["terabytes_per_second"])
        rows.append(
            (
                case["case"],
                f"`{one['name']}`",
                str(one["calls"]),
                three_digits(one["ms"] * 1e3),
                three_digits(rate),
                three_digits(moved * _TIB_PER_TB),
                percent(share),
            )
        )
    return rows
