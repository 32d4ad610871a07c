"""The two kinds of translation rule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Translate = Callable[..., Any]
"""Takes the emitter, then the operator's arguments in its schema's order, missing ones by their defaults:
tensors as Relax expressions, the rest as Python's values. Keyword-only arguments of the schema are given
where
the function names them. Returns a Relax expression, or a tuple of them for an operator of several results."""


@dataclass(frozen=True)
class Rule:
    """What one operator becomes in Relax.

    Attributes:
        operator: the overload as ``torch.ops`` prints it, such as ``aten.amax.default``.
        translate: builds it.
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
    """One operator in terms of torch's other operators, which have rules.

    Attributes:
        operator: the overload as ``torch.ops`` prints it.
        compute: takes what the operator takes, and computes the same with torch.
    """

    operator: str
    compute: Callable[..., Any]


Rules = tuple[Rule | Decomposition, ...]


def rules_of(translations: Mapping[str, Translate]) -> tuple[Rule, ...]:
    """Rules for operators by name."""
    return tuple(Rule(operator, translate) for operator, translate in translations.items())
