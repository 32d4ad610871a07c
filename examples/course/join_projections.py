"""Join the projections of queries, keys and values into one product."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bessemer import OptimizeOptions
from bessemer.client import Client
from examples.course.session import exported, functions_of, run

WIDTH, HEADS, TOKENS = 64, 4, 32


class SelfAttention(nn.Module):
    """Attention with three linear layers that read the same tensor; random weights."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``[1, 32, 64]`` to the same shape."""
        query, key, value = (
            layer(x).view(1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        return attended.transpose(1, 2).flatten(2)


def show(client: Client, folder: Path) -> None:
    """Compile with and without the rewrite: with it, the library calls two functions instead of four."""
    model = exported(SelfAttention().eval(), (torch.randn(1, TOKENS, WIDTH),), folder / "attention.pt2")
    plain, joint = (
        client.submit(model, target="host", optimize=options).wait().report()
        for options in (OptimizeOptions(), OptimizeOptions(enable=("projections",)))
    )
    for report in (plain, joint):
        fired = {rewrite.name: rewrite.count for rewrite in report.rewrites if rewrite.count}
        print(f"with the rewrites {fired}, the calls are {functions_of(report)}")
    assert sum(functions_of(plain).values()) == 4
    assert sum(functions_of(joint).values()) == 2


if __name__ == "__main__":
    run(show)
