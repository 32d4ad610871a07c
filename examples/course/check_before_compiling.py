"""Check in seconds whether a network compiles."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bessemer.client import Client
from bessemer.contract.report import Preflight
from bessemer.contract.stage import Stage
from examples.course.session import run, trained


class Window(nn.Module):
    """Weights a signal by a Bessel function, which has no translation rule."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map signals ``[N, 16]`` to weighted signals."""
        place = torch.linspace(-1, 1, 16)
        return x * torch.special.bessel_j0(8 * place)


def show(client: Client, folder: Path) -> None:
    """Check both networks. The CNN compiles; the other one's problem names the operator's source line."""
    good = _preflight(client, trained("cnn", folder))
    for use in good.operators:
        print(f"{use.calls} x {use.name}, {use.flops:,} floating-point operations")
    print(f"{good.parameters:,} parameters, {good.peak_activation_bytes:,} bytes of activations")
    assert good.compiles
    assert good.flops == 2 * (32 * 26 * 26 * 9 + 5408 * 100 + 100 * 10)
    assert good.parameter_bytes == 4 * good.parameters == 4 * 542_230
    path = folder / "window.pt2"
    torch.export.save(torch.export.export(Window(), (torch.zeros(1, 16),)), path)
    bad = _preflight(client, path)
    (problem,) = bad.problems
    for place in problem.places:
        print(f"{place.operator} at {place.file}:{place.line} would not compile")
    assert not bad.compiles
    assert {place.operator for place in problem.places} == {"aten.special_bessel_j0.default"}
    assert "Rule(" in bad.rule_template


def _preflight(client: Client, model: Path) -> Preflight:
    job = client.submit(model, target="host", stop_after=Stage.TRANSLATE).wait()
    found = job.report().preflight
    assert found is not None
    assert job.document.stage is Stage.TRANSLATE
    return found


if __name__ == "__main__":
    run(show)
