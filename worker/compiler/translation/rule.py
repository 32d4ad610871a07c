"""The three kinds of translation rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

Translate = Callable[..., Any]
"""Takes the emitter, then the operator's arguments in its schema's order with defaults filled in: tensors as
Relax expressions, others as Python values. Keyword-only arguments are passed if the function names them.
Returns a Relax expression, or a tuple of them for several results."""


@dataclass(frozen=True)
class Rule:
    """Translates one operator to Relax.

    Attributes:
        operator: the overload as ``torch.ops`` prints it, such as ``aten.amax.default``.
        translate: emits the translation.
    """

    operator: str
    translate: Translate

    @cached_property
    def keywords(self) -> frozenset[str]:
        """The keyword-only arguments that ``translate`` names."""
        parameters = inspect.signature(self.translate).parameters.values()
        return frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


@dataclass(frozen=True)
class Decomposition:
    """Replaces one operator by other torch operators, which have rules.

    Attributes:
        operator: the overload as ``torch.ops`` prints it.
        compute: takes the operator's arguments and computes the same with torch.
    """

    operator: str
    compute: Callable[..., Any]


OF_COMPLEX = " of complex numbers"


class Parts(NamedTuple):
    """The real and the imaginary part of a complex tensor."""

    real: torch.Tensor
    imaginary: torch.Tensor


@dataclass(frozen=True)
class ComplexDecomposition:
    """Replaces one operator, where an argument or the result is complex, by operators on real tensors.

    Attributes:
        operator: the overload as ``torch.ops`` prints it, followed by ``OF_COMPLEX``.
        compute: takes the operator's arguments, complex tensors as ``Parts``, and returns a complex result
            as ``Parts``. The parts of a result are cast and expanded to torch's dtype and shape.
    """

    operator: str
    compute: Callable[..., Any]


Rules = tuple[Rule | Decomposition | ComplexDecomposition, ...]


def rules_of(translations: Mapping[str, Translate]) -> tuple[Rule, ...]:
    """Rules from a table by operator name."""
    return tuple(Rule(operator, translate) for operator, translate in translations.items())


def from_torch(operator: torch._ops.OpOverload) -> Decomposition:
    """torch's own decomposition of an operator that ``torch.export`` does not decompose."""
    return Decomposition(str(operator), torch._decomp.decomposition_table[operator])
