"""Measures prepared bundles beside torch: ``python -m benchmarks.gpu.measure FOLDER RESULTS.json``.

``FOLDER/cases`` has the bundles, ``FOLDER/products`` the products of ``benchmarks.gpu.products``.
Runs where the GPU is; needs torch with CUDA, numpy and apache-tvm-ffi, and no compiler of ours. Every case
is a process of its own, which compiles its peers while others do; then they measure one after the other.

A time is the median of events around single runs. Between cold runs, a write of twice the second-level cache
replaces its contents; the sides take turns.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.cases import Case, parse
from benchmarks.gpu.measure_products import measure_products

Runs = dict[str, Callable[[], object]]

_ROUNDS, _RUNS, _WARM_UP = 10, 20, 5
_GRAPH = "torch, CUDA graph"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile(max-autotune)")
    parser.add_argument("--seconds", type=float, default=300, help="stop waiting for peers after this time")
    parser.add_argument("--case")
    chosen = parser.parse_args()
    if chosen.case:
        _measure_case(chosen)
        return
    cases = _cases(chosen.folder)
    work = chosen.results.with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu.measure", *sys.argv[1:]]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    started = [
        subprocess.Popen([*command, "--case", case], env=environment, stdout=(work / f"{case}.log").open("w"),
                         stderr=subprocess.STDOUT)
        for case in cases
    ]  # fmt: skip
    for process in started:
        process.wait()
    found = [json.loads(path.read_text()) for path in sorted(work.glob("*.json"))]
    document = {
        "measured_at": datetime.now(UTC).isoformat(),
        "machine": {**_machine(), **_ceilings()},
        "cases": found,
        "products": measure_products(chosen.folder / "products"),
    }
    chosen.results.write_text(_in_lines(document))
    for case in found:
        print(_line(case))


def _in_lines(document: dict[str, Any]) -> str:
    """The document as JSON with a line for each case and each product."""
    parts = []
    for name, value in document.items():
        rows = ",\n".join(f"  {json.dumps(one)}" for one in value) if isinstance(value, list) else ""
        parts.append(f" {json.dumps(name)}: " + (f"[\n{rows}\n ]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _cases(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("cases/*/manifest.json"))


def _ceilings() -> dict[str, float]:
    """The fastest product and the fastest copy that this GPU makes, in TFLOP/s and TB/s."""
    size, repeat = 8192, 10
    found: dict[str, float] = {}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        left, right = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
        times = sorted(_timed(lambda left=left, right=right: left @ right) for _ in range(repeat))
        found[f"{name}_tflops"] = 2e-9 * size**3 / times[0]
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    times = sorted(_timed(lambda: target.copy_(source)) for _ in range(repeat))
    return {**found, "terabytes_per_second": 2e-9 * source.nbytes / times[0]}


def _line(case: dict[str, Any]) -> str:
    shown = ", ".join(f"{name} {times['warm_ms']:.4f}" for name, times in case.get("times", {}).items())
    return f"{case['case']}: {case['verdict']}; {shown}{case.get('error', '')}"


def _machine() -> dict[str, Any]:
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw"
    seen = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"gpu": seen.stdout.strip(), "torch": torch.__version__, "cuda": torch.version.cuda}


def _measure_case(chosen: argparse.Namespace) -> None:
    work = chosen.results.with_suffix(".work")
    result: dict[str, Any] = {"case": chosen.case, "verdict": "failed"}
    try:
        _fill(result, chosen, work)
    except Exception as error:
        traceback.print_exc()
        result["error"] = f" {type(error).__name__}: {error}"[:500]
    (work / f"{chosen.case}.ready").touch()
    (work / f"{chosen.case}.json").write_text(json.dumps(result))


def _fill(result: dict[str, Any], chosen: argparse.Namespace, work: Path) -> None:
    case, bundle = parse(chosen.case), chosen.folder / "cases" / chosen.case
    torch.set_num_threads(2)
    module, inputs = case.build().cuda(), tuple(one.cuda() for one in case.inputs())
    runner = _runner(bundle)
    with torch.inference_mode():
        runs: Runs = {"torch eager": lambda: module(*inputs)}
        _warm(runs)
        if chosen.compile:
            compiled = torch.compile(module, mode="max-autotune")
            runs["torch.compile(max-autotune)"] = lambda: compiled(*inputs)
            _warm(runs)
        (work / f"{chosen.case}.ready").touch()
        _await_all(chosen, work)
        with _alone(work):
            started = time.perf_counter()
            model = runner.load(bundle)
            session = model.gpu_session()
            result["load_ms"] = (time.perf_counter() - started) * 1e3
            given = dict(zip((spec.name for spec in model.inputs), inputs, strict=True))
            outputs = {name: torch.from_dlpack(made) for name, made in session.run(given).items()}
            torch.cuda.synchronize()
            result["verdict"] = _compare(model, outputs)
            result["errors"] = _errors(case, inputs, outputs, module(*inputs))
            result["program"] = _run_program(bundle)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                runs[_GRAPH] = _graph(lambda: module(*inputs))
                runs["Bessemer"], _ = session.bind(given, outputs, stream.cuda_stream)
                _warm(runs)
                result["times"] = _times(runs)
            result["functions"] = _functions(bundle, lambda: session.run(given))
            result["clocks"] = _machine()["gpu"]


def _runner(bundle: Path) -> Any:
    spec = importlib.util.spec_from_file_location("bundle_runner", bundle / "run.py")
    assert spec and spec.loader
    runner = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = runner
    spec.loader.exec_module(runner)
    return runner


def _compare(model: Any, outputs: dict[str, Any]) -> str:
    """Compare with the model's outputs on the processor, by the bundle's tolerances."""
    comparisons = model.compare({name: _array(one) for name, one in outputs.items()})
    wrong = sum(one.mismatches for one in comparisons)
    return "matches" if not wrong else f"{wrong} elements differ"


def _errors(
    case: Case, inputs: tuple[torch.Tensor, ...], ours: dict[str, Any], theirs: Any
) -> dict[str, float]:
    """Root mean squares of the errors of ours and torch's on the GPU, relative to float64's result there."""
    exact = case.build().double().cuda()
    widened = tuple(one.double() if one.is_floating_point() else one for one in inputs)
    reference = next(_tensors(exact(*widened)))
    scale = reference.square().mean().sqrt()
    found = {"ours": next(iter(ours.values())), "torch": next(_tensors(theirs))}
    return {
        name: float((one.double() - reference).square().mean().sqrt() / scale) for name, one in found.items()
    }


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    is_half = tensor.dtype == torch.bfloat16
    return tensor.cpu().view(torch.uint16).numpy() if is_half else tensor.cpu().numpy()


def _run_program(bundle: Path) -> str:
    done = subprocess.run([str(bundle / "run")], capture_output=True, text=True, check=False)
    return f"{done.returncode}: {(done.stdout + done.stderr)[-300:]}"


def _graph(call: Callable[[], object]) -> Callable[[], object]:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _warm(runs: Runs) -> None:
    for call in runs.values():
        for _ in range(_WARM_UP):
            call()
    torch.cuda.synchronize()


def _times(runs: Runs) -> dict[str, dict[str, float]]:
    """Median milliseconds of single runs, warm and cold; percentiles of the warm ones."""
    properties = torch.cuda.get_device_properties(0)
    flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.uint8, device="cuda")
    warm: dict[str, list[float]] = {name: [] for name in runs}
    cold: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(_ROUNDS):
        for name, call in runs.items():
            warm[name] += (_timed(call) for _ in range(_RUNS))
            for _ in range(_RUNS // 5):
                flush.zero_()
                cold[name].append(_timed(call))
    return {
        name: {
            "warm_ms": median(times),
            "p10_ms": sorted(times)[len(times) // 10],
            "p90_ms": sorted(times)[len(times) * 9 // 10],
            "cold_ms": median(cold[name]),
            "runs": len(times),
        }
        for name, times in warm.items()
    }


def _timed(call: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _functions(bundle: Path, run: Callable[[], object]) -> list[dict[str, Any]]:
    """The median time of a call of each function, by the profiler's times of its kernels."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(_RUNS):
            run()
        torch.cuda.synchronize()
    seen: dict[str, list[float]] = {}
    for event in profiled.events():
        seen.setdefault(event.name, []).append(event.device_time * 1e-3)
    functions = json.loads((bundle / "report.json").read_text())["gpu_functions"]
    return [
        {**function, "ms": sum(median(seen.get(kernel, [0.0])) for kernel in function["kernels"])}
        for function in functions
    ]


def _await_all(chosen: argparse.Namespace, work: Path) -> None:
    count = len(_cases(chosen.folder))
    end = time.monotonic() + chosen.seconds
    while len(list(work.glob("*.ready"))) < count and time.monotonic() < end:
        time.sleep(0.1)


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Let one process measure at a time."""
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(Exception):
            torch.cuda.empty_cache()
        yield


if __name__ == "__main__":
    main()
