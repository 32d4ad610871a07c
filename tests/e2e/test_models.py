"""Example models in every format, through the whole service.

``tests/stages/test_capture_models.py`` checks that a model is the same program in each format.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from saved_models import Saved
from torch import nn

from bessemer.client import Client
from bessemer.contract.job import Compilation
from bessemer.contract.stage import Stage
from examples.models import EXAMPLES
from examples.models.save import SavedAs

AGREEMENT = Path(__file__).parent / "agreement.py"
RANDOM_INPUTS = 1000
LOGIT_ERROR = 1e-5
"""Of the largest logit (about 90, where float32's own step is 8e-6)."""
SMALL = [*(("mlp", saved_as) for saved_as in SavedAs), ("cnn", SavedAs.PT2)]
LARGE = {
    "resnet18": SavedAs.TRACED,
    "mobilenet_v2": SavedAs.SCRIPTED,
    "bert": SavedAs.FX,
    "vit_tiny": SavedAs.PT2,
    "gpt2_block": SavedAs.PT2,
    "unet": SavedAs.PT2,
}


def compiled(url: str, saved: Saved, name: str, saved_as: SavedAs, bundle: Path) -> Compilation:
    inputs = {spec.name: spec.spec.partition("=")[2] for spec in EXAMPLES[name].inputs}
    with Client(url) as client:
        job = client.submit(saved.path(name, saved_as), inputs=inputs, target="host").wait()
        job.download(bundle)
        return job.document


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "saved_as"), SMALL)
def test_the_library_agrees_with_torch_on_a_thousand_inputs(
    service: str, saved: Saved, tmp_path: Path, name: str, saved_as: SavedAs
) -> None:
    document = compiled(service, saved, name, saved_as, tmp_path)
    command = [sys.executable, AGREEMENT, name, tmp_path, str(RANDOM_INPUTS)]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "TVM_NUM_THREADS": "1"}
    agreement = json.loads(subprocess.run(command, capture_output=True, check=True, env=settings).stdout)
    assert document.verified
    assert agreement["same_class"] == RANDOM_INPUTS
    assert agreement["worst_error"] <= LOGIT_ERROR


class Logits(nn.Module):
    """A layer of half precision that returns float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 32).to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.to(self.layer.weight.dtype)).float()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_may_compute_in_half_precision_and_return_float32(
    service: str, tmp_path: Path, dtype: torch.dtype
) -> None:
    torch.export.save(torch.export.export(Logits(dtype).eval(), (torch.randn(3, 64),)), tmp_path / "a.pt2")
    with Client(service) as client:
        job = client.submit(tmp_path / "a.pt2", target="host").wait()

    assert job.document.verified


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "saved_as"), LARGE.items())
def test_larger_models_are_verified(
    service: str, saved: Saved, tmp_path: Path, name: str, saved_as: SavedAs
) -> None:
    document = compiled(service, saved, name, saved_as, tmp_path)
    assert document.verified
    assert [time.stage for time in document.stages] == list(Stage)
    assert document.figures is not None
    assert document.figures.baselines[0].name == "torch-eager"
