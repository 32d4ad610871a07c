"""What is measured: models at two batch sizes and in two precisions. Needs torch only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from examples.models import EXAMPLES

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
_VALUES = (-1.3, -0.5, 0.5, 1.3)
"""Random weights of four values, in standard deviations: they compress, so bundles travel fast."""


@dataclass(frozen=True)
class Case:
    """A model with a batch size and a precision."""

    model: str
    batch: int
    precision: str

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.model}-{self.batch}-{self.precision}"

    def build(self) -> nn.Module:
        """The model, with seeded weights; torch multiplies its matrices in tf32 from now on, or not."""
        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"
        torch.manual_seed(0)
        module = EXAMPLES[self.model].build().eval()
        generator = torch.Generator().manual_seed(0)
        values = torch.tensor(_VALUES)
        for weight in module.parameters():
            if weight.dim() > 1:
                chosen = torch.randint(len(_VALUES), weight.shape, generator=generator)
                weight.data = values[chosen] * weight.data.std()
        return module.to(DTYPES[self.precision])

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Seeded inputs."""
        generator = torch.Generator().manual_seed(0)
        dtype = DTYPES[self.precision]
        drawn: list[torch.Tensor] = []
        for spec in EXAMPLES[self.model].inputs:
            shape = (self.batch, *spec.shape[1:])
            if spec.dtype == "float32":
                drawn.append(torch.randn(shape, generator=generator).to(dtype))
            else:
                drawn.append(torch.randint(spec.limit, shape, generator=generator))
        return tuple(drawn)


def parse(name: str) -> Case:
    """The case of a name such as ``resnet50-32-bf16``."""
    model, batch, precision = name.rsplit("-", 2)
    return Case(model, int(batch), precision)


MODELS = ("mlp", "cnn", "resnet18", "resnet50", "mobilenet_v2", "bert", "vit_tiny", "gpt2_block", "unet")
ALL = tuple(Case(model, batch, precision) for precision in DTYPES for batch in (1, 32) for model in MODELS)
"""What ``make bench-gpu`` measures."""
