"""Models of open sizes through the whole service: their bundles run at any size in the range."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bessemer.client import Client
from examples.models import EXAMPLES

BATCH = torch.export.Dim("batch", min=1, max=64)
LENGTH = torch.export.Dim("length", min=1, max=128)


def encoder() -> nn.Module:
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def run_bundle(bundle: Path, values: torch.Tensor, folder: Path) -> subprocess.CompletedProcess[str]:
    name = json.loads((bundle / "manifest.json").read_text())["inputs"][0]["name"]
    np.save(folder / "input.npy", values.numpy())
    arguments = ["--input", f"{name}={folder / 'input.npy'}", "--output", str(folder / "output.npz")]
    return subprocess.run(
        [sys.executable, str(bundle / "run.py"), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("build", "example", "axes", "shapes", "beyond"),
    [
        (EXAMPLES["mlp"].build, (4, 784), {0: BATCH}, [(1, 784), (7, 784), (64, 784)], (65, 784)),
        (encoder, (2, 8, 32), {0: BATCH, 1: LENGTH}, [(1, 1, 32), (3, 17, 32), (2, 128, 32)], (2, 129, 32)),
    ],
    ids=["mlp", "encoder"],
)
def test_one_bundle_runs_at_every_size_of_its_range(
    service: str, tmp_path: Path, build: Any, example: Any, axes: Any, shapes: Any, beyond: Any
) -> None:
    module = build().eval()
    path, bundle = tmp_path / "model.pt2", tmp_path / "bundle"
    with torch.no_grad():
        program = torch.export.export(module, (torch.randn(example),), dynamic_shapes=(axes,))
    torch.export.save(program, path)
    with Client(service) as client:
        model = client.inspect(path)
        client.submit(path, target="host").wait().download(bundle)
    assert model.inspection is not None
    assert len(model.inspection.signature.dynamic.dimensions) == len(axes)
    for shape in shapes:
        values = torch.randn(shape)
        ran = run_bundle(bundle, values, tmp_path)
        assert ran.returncode == 0, ran.stderr
        with torch.inference_mode():
            expected = module(values).numpy()
        found = np.load(tmp_path / "output.npz")["output"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    refused = run_bundle(bundle, torch.randn(beyond), tmp_path)
    assert refused.returncode == 2
    assert "from 1 to" in refused.stderr
