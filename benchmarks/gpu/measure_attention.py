"""Times prepared attention beside torch's: ``python -m benchmarks.gpu.measure_attention FOLDER``.

Needs torch with CUDA and ``cuda.bindings``. Operands rotate among copies that together exceed the cache.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu.measure_products import CACHE_BYTES, checked, launcher, times_of

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def measure_attention(folder: Path) -> list[dict[str, Any]]:
    """Time every prepared attention of a folder, and print a line for each plan."""
    torch.zeros(1, device="cuda")
    return [_measure(path) for path in sorted(folder.glob("*/attention.json"))]


def _measure(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    shape = document["shape"]
    sizes = tuple(shape[name] for name in ("batch", "tokens", "heads", "depth"))
    work = 4e-9 * shape["batch"] * shape["heads"] * shape["tokens"] ** 2 * shape["depth"]
    one = 2 * shape["batch"] * shape["tokens"] * shape["heads"] * shape["depth"]
    copies = max(2, min(16, CACHE_BYTES // (4 * one) + 1))

    def draw() -> torch.Tensor:
        return torch.randn(sizes, device="cuda").to(torch.bfloat16)

    operands: list[Operands] = [(draw(), draw(), draw()) for _ in range(copies)]
    result = draw()

    def theirs(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        heads_first = (x.transpose(1, 2) for x in (query, key, value))
        return scaled_dot_product_attention(*heads_first, is_causal=shape["causal"]).transpose(1, 2)

    exact = theirs(*(x.double() for x in operands[0]))
    (module,) = checked(driver.cuModuleLoadData((next(path.parent.glob("*.cubin"))).read_bytes()))
    runs: dict[str, Callable[[int], object]] = {"torch": lambda index: theirs(*operands[index])}
    plans: dict[str, dict[str, Any]] = {}
    for name, plan in document["plans"].items():
        result.fill_(float("nan"))
        launch = launcher(module, plan)
        launch(*operands[0], result)
        torch.cuda.synchronize()
        error = float((result.double() - exact).norm() / exact.norm())
        plans[name] = {"plan": plan["plan"], "error": error if error == error else 9.0}
        runs[name] = lambda index, launch=launch: launch(*operands[index], result)
    error = float((theirs(*operands[0]).double() - exact).norm() / exact.norm())
    times = times_of(runs, copies)
    torch_ms = times["torch"]
    print(f"{path.parent.name}: torch {torch_ms:.4f} ms ({work / torch_ms:.0f} TFLOP/s, error {error:.1e})")
    for name, found in plans.items():
        found["ms"] = times[name]
        ratio = times[name] / torch_ms
        print(
            f"  {name} {times[name]:.4f} ms = {ratio:.2f} of torch's, error {found['error']:.1e}: "
            f"{found['plan']}",
            flush=True,
        )
    return {"shape": shape, "torch_ms": torch_ms, "plans": plans, "usage": document["usage"]}


if __name__ == "__main__":
    measure_attention(Path(sys.argv[1]))
