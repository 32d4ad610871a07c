"""Ask in seconds what a network consists of, and what of it would not compile."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bessemer.client import Client
from bessemer.contract.preflight import Preflight
from bessemer.contract.stage import Stage
from examples.course.session import run, trained


class Window(nn.Module):
    """Weighs a signal by the profile of a round wave, a Bessel function that no rule translates."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Signals ``[N, 16]`` to weighted signals."""
        place = torch.linspace(-1, 1, 16)
        return x * torch.special.bessel_j0(8 * place)


def show(client: Client, folder: Path) -> None:
    """The CNN would compile; a network with an unknown operator is told where it stands in its source."""
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
    assert "Rule(" in problem.detail


def _preflight(client: Client, model: Path) -> Preflight:
    job = client.submit(model, target="host", stop_after=Stage.TRANSLATE).wait()
    found = job.report().preflight
    assert found is not None
    assert job.document.stage is Stage.TRANSLATE
    return found


if __name__ == "__main__":
    run(show)
