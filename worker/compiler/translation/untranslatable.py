"""What cannot be translated, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.fx import Node

RANDOM = "draws random numbers: call eval() before exporting, or make what is drawn an input of the model"
OF_DATA = (
    "has a result whose size depends on data: keep the full size and mask it (torch.where), or name the size "
    "(nonzero_static, topk, bincount by one_hot and sum, output_size of repeat_interleave)"
)

QUANTIZED = "computes with quantized values: compile the float model, before its quantization"
QUANTIZED_NAMESPACES = frozenset({"quantized", "quantized_decomposed", "torchao"})


class UntranslatableError(Exception):
    """A rule knows the operator, but not with these arguments.

    Attributes:
        reason: with which.
        operator: whose rule it is, where it is a decomposition's.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.operator: str | None = None


def advice_on(node: Node) -> str | None:
    """What an operator does that no rule can do, and what to do instead; None where a rule could."""
    if getattr(node.target, "namespace", None) in QUANTIZED_NAMESPACES:
        return QUANTIZED
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return RANDOM
    return OF_DATA if torch.Tag.dynamic_output_shape in tags else None
