"""Recognize a layer norm and a GELU that are written in elementary operators."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import nn

from bessemer import OptimizeOptions
from bessemer.client import Client
from examples.course.session import exported, functions_of, run
from examples.models import EXAMPLES

RECOGNIZED = ("gelu_erf", "layer_norm")


class WrittenOut(nn.Module):
    """The layers of the trained MLP with a written-out norm and activation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.trained = EXAMPLES["mlp"].build()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images ``[1, 784]`` to logits ``[1, 10]``."""
        hidden = self.trained.hidden(x)
        centered = hidden - hidden.mean(-1, keepdim=True)
        variance = centered.pow(2).mean(-1, keepdim=True)
        normal = centered / torch.sqrt(variance + 1e-5)
        return self.trained.classes(normal * 0.5 * (1 + torch.erf(normal / math.sqrt(2))))


def show(client: Client, folder: Path) -> None:
    """Compile with and without the two default rewrites: with them, the library has fewer functions."""
    model = exported(WrittenOut(), EXAMPLES["mlp"].example_inputs(), folder / "written-out.pt2")
    reports = [
        client.submit(model, target="host", optimize=options).wait().report()
        for options in (OptimizeOptions(), OptimizeOptions(disable=RECOGNIZED))
    ]
    functions = [functions_of(report) for report in reports]
    fired = {rewrite.name: rewrite.count for rewrite in reports[0].rewrites if rewrite.count}
    print(f"recognized: {fired}")
    for names, title in zip(functions, ("with", "without"), strict=True):
        print(f"functions {title}: {', '.join(names)}")
    assert fired == dict.fromkeys(RECOGNIZED, 1)
    assert any("layer_norm" in name for name in functions[0])
    assert len(functions[0]) < len(functions[1])


if __name__ == "__main__":
    run(show)
