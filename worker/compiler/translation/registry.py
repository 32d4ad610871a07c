"""The translation rules in force: the built-in ones and those that installed packages add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from worker.compiler.extensions import ExtensionPoint, cached_book, in_modules
from worker.compiler.translation import rules
from worker.compiler.translation.rule import (
    AnyRule,
    ComplexDecomposition,
    Decomposition,
    ModuleRule,
    Rule,
    rule_key,
)

POINT: ExtensionPoint[AnyRule] = ExtensionPoint(
    group="bessemer.translation_rules",
    attribute="RULES",
    kinds=(Rule, ModuleRule, Decomposition, ComplexDecomposition),
    name_of=rule_key,
    built_in=in_modules(rules, "RULES"),
)


@dataclass(frozen=True)
class RuleBook:
    """Rules by operator, and those of modules by class.

    The operators in ``whole`` are not decomposed, because an extension has a rule for them.
    """

    rules: dict[str, Rule]
    modules: dict[str, ModuleRule]
    decompositions: dict[str, Decomposition]
    of_complex: dict[str, ComplexDecomposition]
    whole: frozenset[str] = frozenset()


@cached_book
def rule_book() -> RuleBook:
    """The rules in force. Loading them imports the packages, which define their custom operators for torch.

    Raises:
        ExtensionError: an entry point does not give rules, or two packages give one for the same operator.
    """
    return make_rule_book(POINT.installed())


def make_rule_book(installed: Iterable[EntryPoint]) -> RuleBook:
    """The built-in rules and those of entry points; see ``rule_book``."""
    chains = POINT.chains(installed)
    found = {name: chain[0].item for name, chain in chains.items()}
    return RuleBook(
        rules={name: rule for name, rule in found.items() if isinstance(rule, Rule)},
        modules={name: rule for name, rule in found.items() if isinstance(rule, ModuleRule)},
        decompositions={name: rule for name, rule in found.items() if isinstance(rule, Decomposition)},
        of_complex={name: rule for name, rule in found.items() if isinstance(rule, ComplexDecomposition)},
        whole=frozenset(
            name
            for name, chain in chains.items()
            if isinstance(chain[0].item, Rule) and chain[0].source not in POINT.built_in
        ),
    )
