"""Dynamic models through the whole service: their bundles run at any size in the range."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bessemer.client import Client
from examples.models import EXAMPLES
from tests.stages.capture_samples import exported, graph, traced

BATCH = torch.export.Dim("batch", min=1, max=64)
SIDE = torch.export.Dim("side", min=2, max=64)
LENGTH = torch.export.Dim("length", min=1, max=128)

Save = Callable[[nn.Module, Path], Path]


def encoder() -> nn.Module:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def convolutions() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


class Encoded(nn.Module):
    """Pools and enlarges images, whose height must be even."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(16, 4, 1)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).relu()
        return self.last(torch.cat([self.up(self.pool(y)), y], 1))


def exported_images(module: nn.Module, path: Path) -> Path:
    with torch.no_grad():
        return exported(module, path, torch.randn(1, 3, 32, 16), dynamic_shapes=({2: 2 * SIDE},))


def exported_encoder(module: nn.Module, path: Path) -> Path:
    with torch.no_grad():
        return exported(module, path, torch.randn(2, 8, 32), dynamic_shapes=({0: BATCH, 1: LENGTH},))


@dataclass(frozen=True)
class Case:
    """A model (submitted unsaved without ``save``), its request's dimensions, and inputs for its bundle."""

    build: Callable[[], nn.Module]
    save: Save | None
    shapes: list[tuple[int, ...]]
    beyond: tuple[int, ...]
    dimensions: list[str]
    inputs: Any = ()
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)


CASES = {
    "pt2": Case(
        encoder, exported_encoder, [(1, 1, 32), (3, 17, 32), (2, 128, 32)], (2, 129, 32),
        ["src_0 from 1 to 64", "src_1 from 1 to 128"],
    ),
    "multiples": Case(
        Encoded, exported_images, [(1, 3, 4, 16), (1, 3, 30, 16), (1, 3, 128, 16)], (1, 3, 31, 16),
        ["x_2 from 2 to 64"],
    ),
    "traced": Case(
        EXAMPLES["mlp"].build, lambda module, path: traced(module, path, torch.randn(4, 784)),
        [(1, 784), (7, 784), (64, 784)], (65, 784),
        ["batch from 1 to 64"], {"x": ("batch", 784)}, {"batch": (1, 64)},
    ),
    "fx": Case(
        convolutions, graph, [(1, 3, 20, 20), (7, 3, 20, 20), (16, 3, 20, 20)], (17, 3, 20, 20),
        ["batch from 1 to 16"], {"input": "batchx3x20x20"}, {"batch": (1, 16)},
    ),
    "module": Case(
        EXAMPLES["mlp"].build, None, [(1, 784), (7, 784), (64, 784)], (65, 784),
        ["batch from 1 to 64"], {"x": ("batch", 784)}, {"batch": (1, 64)},
    ),
}  # fmt: skip


def run_bundle(bundle: Path, values: torch.Tensor, folder: Path) -> subprocess.CompletedProcess[str]:
    name = json.loads((bundle / "manifest.json").read_text())["inputs"][0]["name"]
    np.save(folder / "input.npy", values.numpy())
    arguments = ["--input", f"{name}={folder / 'input.npy'}", "--output", str(folder / "output.npz")]
    return subprocess.run(
        [sys.executable, str(bundle / "run.py"), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.sampled
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_one_bundle_runs_at_every_size_in_its_range(service: str, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    module = case.build().eval()
    path, bundle = tmp_path / "model.pt2", tmp_path / "bundle"
    if case.save is not None:
        case.save(module, path)
    source = path if case.save else module
    with Client(service) as client:
        job = client.submit(source, inputs=case.inputs, dimensions=case.ranges, target="host").wait()
        job.download(bundle)
        assert list(map(str, job.report().dynamic.dimensions)) == case.dimensions
    listed = subprocess.check_output([sys.executable, bundle / "run.py", "--list"], text=True)
    assert case.dimensions[0].split()[0] in listed
    for shape in case.shapes:
        values = torch.randn(shape)
        ran = run_bundle(bundle, values, tmp_path)
        assert ran.returncode == 0, ran.stderr
        with torch.inference_mode():
            expected = module(values).numpy()
        found = np.load(tmp_path / "output.npz")["output"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    refused = run_bundle(bundle, torch.randn(case.beyond), tmp_path)
    assert refused.returncode == 2
    assert case.dimensions[-1] in refused.stderr
