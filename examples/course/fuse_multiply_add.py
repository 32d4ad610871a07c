"""Rewrite a product and a sum into one operator."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bessemer import OptimizeOptions
from bessemer.client import Client
from examples.course.session import exported, functions_of, run
from examples.models import EXAMPLES


class Standardized(nn.Module):
    """The trained MLP with a standardization of each pixel before it."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = EXAMPLES["mlp"].build()
        self.register_buffer("scale", torch.full((1, 784), 1.5))
        self.register_buffer("shift", torch.full((1, 784), -0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images ``[1, 784]`` to logits ``[1, 10]``."""
        return self.classes(x * self.scale + self.shift)


def show(client: Client, folder: Path) -> None:
    """Enable ``ewise_fma``: it replaces the standardization, and the report names its line in this file."""
    model = exported(Standardized(), EXAMPLES["mlp"].example_inputs(), folder / "standardized.pt2")
    job = client.submit(model, target="host", optimize=OptimizeOptions(enable=("ewise_fma",))).wait()
    report = job.report()
    (rewrite,) = (one for one in report.rewrites if one.name == "ewise_fma")
    functions = functions_of(report)
    print(f"ewise_fma matched {rewrite.count} time(s), at {rewrite.places[0]}")
    print(f"functions of the library: {', '.join(functions)}")
    assert rewrite.count == 1
    assert rewrite.places[0].file == __file__
    assert any("ewise_fma" in name for name in functions)


if __name__ == "__main__":
    run(show)
