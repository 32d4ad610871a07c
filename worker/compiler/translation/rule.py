"""The kinds of translation rules."""

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


def keyword_only(function: Callable[..., Any]) -> frozenset[str]:
    """The names of a function's keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return frozenset(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)


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
        return keyword_only(self.translate)


@dataclass(frozen=True)
class ModuleRule:
    """Translates one call of a module of a class to Relax, instead of the operators that it calls.

    Attributes:
        module: the class, or its name, with its module or alone: ``torch.nn.modules.linear.Linear``.
        translate: emits the translation. Takes the emitter, then each tensor that the module reads, in the
            order in which it first reads them. Parameters and buffers are passed by keyword if the function
            names them, without the module's path: ``weight``, ``norm_bias`` for ``norm.bias``. Returns a
            Relax expression, or a tuple of them for several results.
    """

    module: type | str
    translate: Translate

    @property
    def type_name(self) -> str:
        """The name of the class."""
        if isinstance(self.module, str):
            return self.module
        return f"{self.module.__module__}.{self.module.__qualname__}"

    @cached_property
    def keywords(self) -> frozenset[str]:
        """The parameters and buffers that ``translate`` names."""
        return keyword_only(self.translate)


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


AnyRule = Rule | ModuleRule | Decomposition | ComplexDecomposition
Rules = tuple[AnyRule, ...]


def rule_key(rule: AnyRule) -> str:
    """The operator or the class that a rule is about."""
    return rule.type_name if isinstance(rule, ModuleRule) else rule.operator


def rules_of(translations: Mapping[str, Translate]) -> tuple[Rule, ...]:
    """Rules from a table by operator name."""
    return tuple(Rule(operator, translate) for operator, translate in translations.items())


def from_torch(operator: torch._ops.OpOverload) -> Decomposition:
    """torch's own decomposition of an operator that ``torch.export`` does not decompose."""
    return Decomposition(str(operator), torch._decomp.decomposition_table[operator])
