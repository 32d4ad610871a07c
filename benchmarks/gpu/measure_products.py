"""Times prepared products beside cuBLAS: ``python -m benchmarks.gpu.measure_products FOLDER``.

Needs torch with CUDA and ``cuda.bindings``. Factors rotate among copies that together exceed the cache.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from cuda.bindings import driver

_ROUNDS, _RUNS = 5, 10
CACHE_BYTES = 120 << 20


def measure_products(folder: Path) -> list[dict[str, Any]]:
    """Time every prepared product of a folder, and print a line for each."""
    torch.zeros(1, device="cuda")
    found = []
    for path in sorted(folder.glob("*/product.json")):
        found.append(_measure(path.parent))
        print(_line(found[-1]), flush=True)
    return found


def _line(found: dict[str, Any]) -> str:
    shape = found["shape"]
    work = 2e-9 * shape["rows"] * shape["columns"] * shape["depth"]
    times = sorted((one["ms"], name) for name, one in found["plans"].items() if one["error"] < 0.02)
    first = found["plans"].get("plan0", {"ms": 0, "error": -1})
    best = times[0] if times else (0, "none")
    size = "x".join(str(shape[axis]) for axis in ("rows", "columns", "depth"))
    cublas = found["cublas_ms"]
    return (
        f"{shape['dtype']} {size}: cuBLAS {cublas:.4f} ms ({work / cublas:.1f} TFLOP/s), "
        f"first plan {first['ms']:.4f} (error {first['error']:.1e}), "
        f"best {best[1]} {best[0]:.4f} = {cublas / max(best[0], 1e-9):.2f} of cuBLAS"
    )


def _measure(path: Path) -> dict[str, Any]:
    document = json.loads((path / "product.json").read_text())
    shape = document["shape"]
    dtype = torch.float32 if shape["dtype"] in ("float32", "tf32") else getattr(torch, shape["dtype"])
    torch.backends.cuda.matmul.allow_tf32 = shape["dtype"] == "tf32"
    size = torch.tensor([], dtype=dtype).element_size()
    bytes_of_one = size * shape["depth"] * (shape["rows"] + shape["columns"])
    copies = max(2, min(16, CACHE_BYTES // bytes_of_one + 1))
    lefts = [torch.randn(shape["rows"], shape["depth"], device="cuda").to(dtype) for _ in range(copies)]
    rights = [torch.randn(shape["depth"], shape["columns"], device="cuda").to(dtype) for _ in range(copies)]
    own = [right.t().contiguous() for right in rights] if shape.get("transposed") else rights
    exact = lefts[0].double() @ rights[0].double()
    theirs = torch.empty(shape["rows"], shape["columns"], device="cuda", dtype=dtype)
    result = torch.empty_like(theirs, dtype=getattr(torch, shape.get("result", str(dtype)[6:])))
    (module,) = checked(driver.cuModuleLoadData((next(path.glob("*.cubin"))).read_bytes()))
    runs: dict[str, Callable[[int], object]] = {
        "cublas": lambda index: torch.matmul(lefts[index], rights[index], out=theirs)
    }
    plans = {}
    for name, plan in document["plans"].items():
        result.fill_(float("nan"))
        try:
            launch = launcher(module, plan)
            launch(lefts[0], own[0], result)
            torch.cuda.synchronize()
        except RuntimeError as error:
            plans[name] = {"plan": plan["plan"], "ms": 0.0, "error": 9.0, "failure": str(error)}
            continue
        error = float((result.double() - exact).norm() / exact.norm())
        plans[name] = {"plan": plan["plan"], "error": error if error == error else 9.0}
        runs[name] = lambda index, launch=launch: launch(lefts[index], own[index], result)
    times = times_of(runs, copies)
    for name in plans:
        plans[name].setdefault("ms", times.get(name, 0.0))
    return {"shape": shape, "cublas_ms": times["cublas"], "plans": plans, "usage": document["usage"]}


def launcher(module: Any, plan: dict[str, Any]) -> Callable[..., None]:
    """A function that starts a plan's kernels on the tensors of a call."""
    spaces = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in plan["workspaces"]]
    steps = []
    for launch in plan["launches"]:
        (function,) = checked(driver.cuModuleGetFunction(module, launch["kernel"].encode()))
        if launch["shared_bytes"] > 48 << 10:
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(function, limit, launch["shared_bytes"]))
        steps.append((function, launch))

    def run(*tensors: torch.Tensor) -> None:
        memory = [tensor.data_ptr() for tensor in (*tensors, *spaces)]
        stream = torch.cuda.current_stream().cuda_stream
        for function, launch in steps:
            values = tuple(memory[index] for index in launch["arguments"])
            kinds = tuple(ctypes.c_void_p for _ in values)
            shared = launch["shared_bytes"]
            checked(
                driver.cuLaunchKernel(
                    function, *launch["grid"], *launch["block"], shared, stream, (values, kinds), 0
                )
            )

    return run


def checked(answer: Sequence[Any]) -> Sequence[Any]:
    """The results of a driver call, without its status. Raises ``RuntimeError`` if the call failed."""
    if int(answer[0]) != 0:
        raise RuntimeError(str(answer[0]))
    return answer[1:]


def times_of(runs: dict[str, Callable[[int], object]], copies: int) -> dict[str, float]:
    """The median milliseconds of one of ten runs in a row; the sides take turns."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(_ROUNDS):
        for name, call in runs.items():
            call(0)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            graph = None
            torch.cuda.synchronize()
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                call(0)
                side.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=side):
                    for index in range(_RUNS):
                        call(index % copies)
                graph.replay()
                side.synchronize()
                start.record(side)
                graph.replay()
                end.record(side)
                end.synchronize()
            seen[name].append(start.elapsed_time(end) / _RUNS)
    return {name: median(times) for name, times in seen.items()}


if __name__ == "__main__":
    measure_products(Path(sys.argv[1]))
