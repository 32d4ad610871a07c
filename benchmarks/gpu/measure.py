"""Measures prepared bundles beside torch: ``python -m benchmarks.gpu.measure FOLDER RESULTS.json``.

``FOLDER/cases`` has the bundles, ``FOLDER/tuned`` those of searches (``benchmarks.gpu.tune``) and
``FOLDER/products`` the products of ``benchmarks.gpu.products``. Runs where the GPU is; needs torch with CUDA,
numpy and apache-tvm-ffi, and no compiler of ours. Every case is a process of its own: they start together and
measure one after the other. With ``--compile``, each starts when the one before has ended, since
``max-autotune`` uses all cores and times kernels; a compilation that exceeds its time is left out. The
results are written after every case, into the file if it exists. A second run measures what is missing.

A time is the median of events around single runs. Between cold runs, a write of twice the second-level cache
replaces its contents; the sides take turns.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import signal
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
_GRAPH, _COMPILED = "torch, CUDA graph", "torch.compile(max-autotune)"
_OURS, _TUNED = "Bessemer", "Bessemer, tuned"
_LATE = 2
"""A process is ended after this many times the seconds of its compilation."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--compile", action="store_true", help="also measure torch.compile(max-autotune)")
    parser.add_argument("--seconds", type=float, default=300, help="stop waiting for peers after this time")
    parser.add_argument("--compile-seconds", type=float, default=120, help="of torch.compile, for each case")
    parser.add_argument("--only", nargs="*", help="these cases, in this order")
    parser.add_argument("--case")
    chosen = parser.parse_args()
    if chosen.case:
        _measure_case(chosen)
        return
    work = chosen.results.with_suffix(".work")
    work.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"measured_at": "", "machine": {}, "cases": [], "products": []}
    if chosen.results.exists():
        document |= json.loads(chosen.results.read_text())
    document |= {"measured_at": datetime.now(UTC).isoformat(), "machine": {**_machine(), **_ceilings()}}
    _write(document, chosen.results)
    cases = [case for case in _cases(chosen) if not _is_measured(work / f"{case}.json")]
    if chosen.compile:
        for case in cases:
            _start(case, work).wait(_LATE * chosen.compile_seconds)
            _add(document, work, chosen.results)
    else:
        for process in [_start(case, work) for case in cases]:
            process.wait()
            _add(document, work, chosen.results)
    products = measure_products(chosen.folder / "products")
    _write(document | ({"products": products} if products else {}), chosen.results)


class _Running(subprocess.Popen[bytes]):
    def wait(self, timeout: float | None = None) -> int:
        """End it if it takes longer."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return super().wait()


def _start(case: str, work: Path) -> _Running:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu.measure", *sys.argv[1:], "--case", case]
    return _Running(command, stdout=(work / f"{case}.log").open("w"), stderr=subprocess.STDOUT)


def _is_measured(path: Path) -> bool:
    return path.exists() and "times" in json.loads(path.read_text())


def _add(document: dict[str, Any], work: Path, results: Path) -> None:
    """Put the measured cases in place of their earlier results, and write the file."""
    found = {case["case"]: case for case in document["cases"]}
    for path in sorted(work.glob("*.json")):
        case = json.loads(path.read_text())
        if found.get(case["case"]) != case:
            print(_line(case), flush=True)
        found[case["case"]] = case
    document["cases"] = [found[name] for name in sorted(found)]
    _write(document, results)


def _write(document: dict[str, Any], results: Path) -> None:
    results.write_text(_in_lines(document))


def _in_lines(document: dict[str, Any]) -> str:
    """The document as JSON with a line for each case and each product."""
    parts = []
    for name, value in document.items():
        rows = ",\n".join(f"  {json.dumps(one)}" for one in value) if isinstance(value, list) else ""
        parts.append(f" {json.dumps(name)}: " + (f"[\n{rows}\n ]" if rows else json.dumps(value)))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _cases(chosen: argparse.Namespace) -> list[str]:
    there = sorted(path.parent.name for path in chosen.folder.glob("cases/*/manifest.json"))
    return there if chosen.only is None else [case for case in chosen.only if case in there]


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
    tuned = chosen.folder / "tuned" / chosen.case
    torch.set_num_threads(2)
    module, inputs = case.build().cuda(), tuple(one.cuda() for one in case.inputs())
    runner = _runner(bundle)
    with torch.inference_mode():
        runs: Runs = {"torch eager": lambda: module(*inputs)}
        _warm(runs)
        if chosen.compile:
            started = time.perf_counter()
            compiled = _compiled(module, inputs, chosen.compile_seconds)
            result["compile_seconds"] = time.perf_counter() - started
            runs |= {} if compiled is None else {_COMPILED: compiled}
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
                runs[_OURS], _ = session.bind(given, outputs, stream.cuda_stream)
                if (tuned / "manifest.json").exists():
                    runs[_TUNED] = _tuned(tuned, runner, given, result, stream.cuda_stream)
                _warm(runs)
                result["times"] = _times(runs)
            result["functions"] = _functions(bundle, lambda: session.run(given))
            result["clocks"] = _machine()["gpu"]


class _TooLong(BaseException):
    """Not an ``Exception``, which the compiler would take for a failure of one of its candidates."""


def _compiled(
    module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], seconds: float
) -> Callable[[], object] | None:
    """The model compiled by torch; None if that takes longer."""

    def stop(_number: int, _frame: object) -> None:
        raise _TooLong

    compiled = torch.compile(module, mode="max-autotune")
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        _warm({_COMPILED: lambda: compiled(*inputs)})
    except (Exception, _TooLong):
        traceback.print_exc()
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return lambda: compiled(*inputs)


def _tuned(
    bundle: Path, runner: Any, given: dict[str, torch.Tensor], result: dict[str, Any], stream: int
) -> Callable[[], object]:
    """The bundle of a search, bound to outputs of its own."""
    model = runner.load(bundle)
    session = model.gpu_session()
    outputs = {name: torch.from_dlpack(made) for name, made in session.run(given).items()}
    torch.cuda.synchronize()
    result["tuned_verdict"] = _compare(model, outputs)
    result["trials"] = json.loads((bundle / "report.json").read_text())["tune"]["trials"]
    run, _ = session.bind(given, outputs, stream)
    return run  # type: ignore[no-any-return]


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
    if chosen.compile:
        return
    count = len(_cases(chosen))
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
