"""Bundles take the model's own arguments and return its own result: with state, entries and dynamic sizes."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bundle_samples import execute
from capture_samples import capture_file, scripted
from package_samples import compile_to_bundle
from torch import nn

from bessemer.bundle.manifest import Manifest
from worker.compiler.values import StageContext

IN_PYTHON = """
import json, sys
import numpy as np
from run import InputError, load

model = load(".")
values = np.load("values.npz")
batch = lambda rows: {"x": values["x"][:rows], "y": values["y"][:rows]}
images = [values["image"], values["image"] + 1]
told = lambda result: {"sums": [sum.tolist() for sum in result["sums"]]}
found = [told(model(images, batch(rows), 2.0)) for rows in (2, 3, 5)]
total = model.call((values["image"],), {}, entry="total")
session = model.session()
first = told(session(images=images, batch=batch(2)))
refused = []
calls = (images[:1], batch(2)), (images, {"x": values["x"]}), (images, batch(2), 3.0), (images, batch(9))
for args in calls:
    try:
        model(*args)
    except InputError as error:
        refused.append(str(error))
total = [part.tolist() for part in total]
print(json.dumps({"found": found, "first": first, "refused": refused, "total": total}))
"""

STATELESS = """
import numpy as np
from run import load

model, ones = load("."), np.ones(4, np.float32)
batch = {"x": np.ones((2, 4), np.float32), "y": np.ones((2, 4), np.float32)}
state, seen = {"seen": ones * 0}, []
for _ in range(2):
    result, state = model([ones], batch, state=state)
    seen.append(float(state["seen"][0]))
print(seen)
"""


class Accumulating(nn.Module):
    """Adds the images of all runs to a batch of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(
        self,
        images: list[torch.Tensor],
        batch: dict[str, torch.Tensor],
        scale: float,
        bias: torch.Tensor | None,
    ) -> dict[str, list[torch.Tensor]]:
        for image in images:
            self.seen.add_(image)
        return {"sums": [batch["x"] + self.seen * scale, batch["y"] - self.seen]}

    @torch.jit.export
    def total(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.add_(image)
        return self.seen * 1, image + 1


def spec(name: str, *shape: int | str) -> dict[str, Any]:
    return {"name": name, "shape": shape}


ENTRIES: dict[str, Any] = {
    "add": {
        "method": "forward",
        "inputs": [
            spec("images.0", 4),
            spec("images.1", 4),
            spec("batch.x", "rows", 4),
            spec("batch.y", "rows", 4),
        ],
        "dimensions": {"rows": {"minimum": 1, "maximum": 8}},
        "constants": {"scale": 2.0},
    },
    "total": {"inputs": [spec("image", 4)]},
}


def values() -> Mapping[str, np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = {"image": 4, "x": (9, 4), "y": (9, 4)}
    return {name: draw.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def test_a_bundle_takes_and_returns_what_the_model_does(context: StageContext, tmp_path: Path) -> None:
    captured = capture_file(scripted(Accumulating().eval(), tmp_path / "model"), entries=ENTRIES)
    folder = compile_to_bundle(captured, context)
    np.savez(folder / "values.npz", **values())
    ran = execute([sys.executable, "-c", IN_PYTHON], folder)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    expected, total = original(2, 3, 5)
    for result, sums in zip([*found["found"], found["first"]], [*expected, original(2)[0][0]], strict=True):
        for own, known in zip(result["sums"], sums, strict=True):
            np.testing.assert_allclose(own, known, rtol=1e-5, atol=1e-5)
    for own, known in zip(found["total"], total, strict=True):
        np.testing.assert_allclose(own, known, rtol=1e-5, atol=1e-5)
    length, key, number, rows = found["refused"]
    takes = "; the model takes (images: [images.0, images.1], batch: {'x': batch.x, 'y': batch.y}, scale: 2.0"
    assert length.startswith(f"'images' has the length 1, expected 2{takes}")
    assert key.startswith(f"missing 'batch.y'{takes}")
    assert number.startswith(f"'scale' is 3.0, but the library is compiled for 2.0{takes}")
    assert "'batch.x' has the shape (9, 4), expected batch.x=[rows]x4:float32 with rows from 1 to 8" in rows


def original(*rows: int) -> tuple[list[list[torch.Tensor]], tuple[torch.Tensor, torch.Tensor]]:
    """The results of runs with these numbers of rows, one after the other, and of ``total`` after them."""
    given = {name: torch.from_numpy(array) for name, array in values().items()}
    model, image = Accumulating().eval(), given["image"]
    results = [
        model([image, image + 1], {"x": given["x"][:count], "y": given["y"][:count]}, 2.0, None)["sums"]
        for count in rows
    ]
    return results, model.total(image)


def test_a_stateless_bundle_takes_and_returns_a_dictionary_of_its_state(
    context: StageContext, tmp_path: Path
) -> None:
    path = scripted(Accumulating().eval(), tmp_path / "model")
    captured = capture_file(
        path, "images.0=4", "batch.x=2x4", "batch.y=2x4", constants={"scale": 1.0}, stateless=True
    )
    folder = compile_to_bundle(captured, context)
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    assert str(manifest.call) == (
        "(images: [images.0], batch: {'x': batch.x, 'y': batch.y}, scale: 1.0, bias: None, "
        "*, state: {'seen': state.seen}) -> ({'sums': [sums.0, sums.1]}, {'seen': state.seen})"
    )
    ran = execute([sys.executable, "-c", STATELESS], folder)
    assert (ran.returncode, ran.stdout) == (0, "[1.0, 2.0]\n"), ran.stderr
