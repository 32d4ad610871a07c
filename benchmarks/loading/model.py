"""The model that is loaded: BERT-base of transformers, 110 million parameters with seeded random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.architectures.torchvision_models import declare_operators

TOKENS = 128


class Encoder(nn.Module):
    """``forward(ids [1, 128])``: the hidden states and the pooled one."""

    def __init__(self) -> None:
        super().__init__()
        declare_operators()  # transformers imports torchvision where it is installed
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        self.bert = BertModel(BertConfig(attn_implementation="eager"))

    def forward(self, ids: torch.Tensor) -> Any:
        """Tuples of tensors only."""
        result = self.bert(ids)
        return result.last_hidden_state, result.pooler_output


def ids() -> torch.Tensor:
    """The numbers of some words."""
    return (1 + 7919 * torch.arange(TOKENS) % 30000)[None]


def write(folder: Path) -> int:
    """Write the model in the form that each runtime reads, and return the bytes of its parameters."""
    model = Encoder().eval().requires_grad_(False)
    torch.save(model, folder / "model.pt")
    torch.export.save(torch.export.export(model, (ids(),), strict=False), folder / "model.pt2")
    try:
        torch.onnx.export(model, (ids(),), str(folder / "model.onnx"), dynamo=False)
    except ImportError as error:
        print(f"no ONNX: {error}")
    return sum(value.numel() * value.element_size() for value in model.parameters())
