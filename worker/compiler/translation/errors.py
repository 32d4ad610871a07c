"""The error of translation rules, and advice on operators that no rule can translate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch.fx import Node

RANDOM = (
    "draws random numbers in a branch or a loop, or from an unsupported distribution: draw them before, or "
    "make them an input of the model"
)
OF_DATA = "has a result whose size depends on data: use nonzero or a mask, or keep the full size and mask it"

QUANTIZED = (
    "computes with quantized tensors: quantize it by export (`convert_pt2e`), or compile the float model"
)
QUANTIZED_NAMESPACES = frozenset({"quantized", "torchao"})


class UntranslatableError(Exception):
    """A rule does not support these arguments of its operator.

    Attributes:
        reason: the arguments that it does not support.
        operator: the operator, if a decomposition raised this.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.operator: str | None = None


def advice_on(node: Node) -> str | None:
    """Why no rule can translate an operator, and what to do instead; None if a rule could."""
    if getattr(node.target, "namespace", None) in QUANTIZED_NAMESPACES:
        return QUANTIZED
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded in tags:
        return RANDOM
    return OF_DATA if torch.Tag.dynamic_output_shape in tags else None
