"""Group a linear layer, its bias and its activation into one function."""

from __future__ import annotations

from pathlib import Path

from bessemer import OptimizeOptions
from bessemer.client import Client
from bessemer.contract.options import Fusion
from examples.course.session import functions_of, run, trained


def show(client: Client, folder: Path) -> None:
    """Compile the MLP without fusion, with groups by pattern, and with TVM's fusion."""
    functions = {
        "none": _functions(client, OptimizeOptions(fusion=Fusion.NONE), folder),
        "patterns": _functions(client, OptimizeOptions(enable=("linear",), fusion=Fusion.PATTERNS), folder),
        "automatic": _functions(client, OptimizeOptions(), folder),
    }
    for fusion, names in functions.items():
        print(f"{fusion:10} {', '.join(names)}")
    assert len(functions["none"]) == 5
    assert functions["patterns"] == ["fused_linear_add", "fused_linear_add_relu"]
    assert len(functions["automatic"]) == 2


def _functions(client: Client, optimize: OptimizeOptions, folder: Path) -> list[str]:
    job = client.submit(trained("mlp", folder), target="host", optimize=optimize).wait()
    return sorted(functions_of(job.report()))


if __name__ == "__main__":
    run(show)
