"""Architectures that other people published, with seeded random weights: no kernel was written for them.

Their packages come with ``make bench-architectures``; a model whose package is missing is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from examples.models import IMAGE, Example, ExampleInput
from examples.models.weights import randomize_batch_norms

SEED = 7
TOKENS = 128
SAMPLES = 16_000
"""One second of sound."""

CLASSIFIERS = (
    "vgg11",
    "densenet121",
    "squeezenet1_1",
    "resnext50_32x4d",
    "shufflenet_v2_x1_0",
    "efficientnet_b0",
    "convnext_tiny",
    "swin_t",
)


class FirstOutput(nn.Module):
    """A model of transformers, reduced to its first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The inputs of the model to its first output."""
        output: torch.Tensor = self.model(x, return_dict=False)[0]
        return output


def published() -> dict[str, Example]:
    """The models whose packages are installed, by name."""
    found: list[Example] = []
    if find_spec("torchvision") is not None:
        found += [Example(name, _seeded(partial(_classifier, name)), IMAGE) for name in CLASSIFIERS]
    if find_spec("transformers") is not None:
        tokens = (ExampleInput("input_ids", (1, TOKENS), "int64", 32_000),)
        sound = (ExampleInput("sound", (1, SAMPLES)),)
        found += [
            Example("t5_encoder", _seeded(partial(_transformer, "T5EncoderModel", "T5Config")), tokens),
            Example("wav2vec2", _seeded(partial(_transformer, "Wav2Vec2Model", "Wav2Vec2Config")), sound),
        ]
    return {example.name: example for example in found}


def _classifier(name: str) -> nn.Module:
    _declare_operators()
    model: nn.Module = getattr(import_module("torchvision.models"), name)(weights=None)
    return randomize_batch_norms(model, SEED)


def _transformer(model: str, config: str) -> nn.Module:
    if find_spec("torchvision") is not None:  # transformers imports it
        _declare_operators()
    transformers: Any = import_module("transformers")
    return FirstOutput(getattr(transformers, model)(getattr(transformers, config)()))


def _declare_operators() -> None:
    import_module("benchmarks.architectures.torchvision_models").declare_operators()


def _seeded(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def seeded() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return build().eval()

    return seeded
