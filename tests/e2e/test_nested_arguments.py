"""A module with containers of tensors, from the client through the service to the bundle."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from bessemer.client import Client

CALL = """
import numpy as np
from run import load

values = np.load("values.npz")
batch = {"left": values["left"], "right": [values["right"], values["bias"]]}
result = load(".")(batch, scale=2)
assert result["none"] is None
np.savez("result.npz", total=result["total"], first=result["parts"][0])
"""


class Nested(nn.Module):
    def forward(self, batch: dict[str, Any], scale: int) -> dict[str, Any]:
        total = batch["left"] * scale + batch["right"][0] + batch["right"][1]
        return {"total": total, "parts": [total.relu()], "none": None}


def test_a_bundle_is_called_as_the_module_is(client: Client, tmp_path: Path) -> None:
    inputs = {"batch": {"left": ("rows", 4), "right": [("rows", 4), (4,)]}}
    job = client.submit(Nested(), inputs=inputs, dimensions={"rows": (1, 8)}, constants={"scale": 2})
    folder = job.wait().download(tmp_path / "bundle")
    assert [spec.name for spec in job.report().inputs] == ["batch.left", "batch.right.0", "batch.right.1"]
    draw = np.random.default_rng(0)
    shapes = {"left": (5, 4), "right": (5, 4), "bias": (4,)}
    values = {name: draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    np.savez(folder / "values.npz", **values)
    subprocess.run([sys.executable, "-c", CALL], cwd=folder, check=True)
    left, right, bias = (torch.from_numpy(values[name]) for name in shapes)
    expected = Nested()({"left": left, "right": [right, bias]}, 2)
    with np.load(folder / "result.npz") as found:
        np.testing.assert_allclose(found["total"], expected["total"].numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["first"], expected["parts"][0].numpy(), rtol=1e-5, atol=1e-6)
