"""The example models by name, each with its inputs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from . import bert, clothes, cnn, gpt2, mlp, mobilenet, recurrent, resnet, unet, vit


@dataclass(frozen=True)
class ExampleInput:
    """One argument of a model: a drawing of clothes, integers below ``limit``, or floats from N(0, 1)."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    limit: int = 2
    shows_clothes: bool = False

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """A random tensor of this shape and dtype."""
        if self.shows_clothes:
            drawings = tuple(clothes.DRAWINGS)
            chosen = torch.randint(len(drawings), self.shape[:1], generator=generator)
            return torch.stack([clothes.draw(drawings[index]) for index in chosen]).reshape(self.shape)
        dtype = getattr(torch, self.dtype)
        if dtype.is_floating_point:
            return torch.randn(self.shape, generator=generator, dtype=dtype)
        return torch.randint(self.limit, self.shape, generator=generator, dtype=dtype)

    @property
    def spec(self) -> str:
        """The spec for the command line, such as ``x=1x784:float32``."""
        return f"{self.name}={'x'.join(map(str, self.shape))}:{self.dtype}"


@dataclass(frozen=True)
class Example:
    """A model and its inputs."""

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[ExampleInput, ...]

    def example_inputs(self, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Seeded random inputs, in the order of the model's arguments."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.draw(generator) for spec in self.inputs)


FRAMES = (ExampleInput("frames", (1, recurrent.FRAMES, recurrent.FEATURES)),)
IMAGE = (ExampleInput("x", (1, 3, 224, 224)),)
EXAMPLES: dict[str, Example] = {
    example.name: example
    for example in (
        Example("mlp", mlp.build, (ExampleInput("x", (1, 784), shows_clothes=True),)),
        Example("cnn", cnn.build, (ExampleInput("x", (1, 1, 28, 28), shows_clothes=True),)),
        Example("resnet18", resnet.build_18, IMAGE),
        Example("resnet50", resnet.build_50, IMAGE),
        Example("mobilenet_v2", mobilenet.build, IMAGE),
        Example("bert", bert.build, (ExampleInput("input_ids", (1, bert.TOKENS), "int64", bert.VOCABULARY),)),
        Example("vit_tiny", vit.build_tiny, IMAGE),
        Example("vit_b16", vit.build_base, IMAGE),
        Example("gpt2_block", gpt2.build, (ExampleInput("hidden", (1, gpt2.TOKENS, gpt2.WIDTH)),)),
        Example("lstm", recurrent.build_lstm, FRAMES),
        Example("gru", recurrent.build_gru, FRAMES),
        Example("unet", unet.build, (ExampleInput("x", (1, 3, unet.IMAGE, unet.IMAGE)),)),
    )
}
