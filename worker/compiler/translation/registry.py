"""The registry of translation rules: the built-in ones, and those of installed packages.

Both are entry points of ``GROUP`` whose objects are tuples of rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules

from worker.compiler.extensions import built_in, collect
from worker.compiler.translation import rules
from worker.compiler.translation.rule import Decomposition, Rule

GROUP = "bessemer.translation_rules"

BUILT_IN = built_in(
    GROUP, f"{rules.__name__}.*:RULES", (module.name for module in iter_modules(rules.__path__))
)


@dataclass(frozen=True)
class RuleBook:
    """Rules by operator."""

    rules: dict[str, Rule]
    decompositions: dict[str, Decomposition]


@lru_cache(maxsize=1)
def rule_book() -> RuleBook:
    """The rules in force. Rules of installed packages replace built-in ones.

    Loading them imports the packages, which registers their custom operators with torch.

    Raises:
        ExtensionError: an entry point is not a tuple of rules, or two packages have a rule for one operator.
    """
    return make_rule_book(BUILT_IN, entry_points(group=GROUP))


def make_rule_book(own: Iterable[EntryPoint], installed: Iterable[EntryPoint]) -> RuleBook:
    """Build a rule book from entry points; see ``rule_book``."""
    kinds: tuple[type[Rule | Decomposition], ...] = (Rule, Decomposition)
    built, added = (collect(points, kinds, lambda one: one.operator) for points in (own, installed))
    chosen = {**built, **added}
    rules = {operator: rule for operator, (rule, _) in chosen.items()}
    return RuleBook(
        rules={operator: rule for operator, rule in rules.items() if isinstance(rule, Rule)},
        decompositions={
            operator: rule for operator, rule in rules.items() if isinstance(rule, Decomposition)
        },
    )
