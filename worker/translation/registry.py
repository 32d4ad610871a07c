"""All translation rules: the built-in ones, then those that installed packages add.

Both are entry points of ``GROUP`` whose objects are tuples of rules. The built-in ones are named here: the
worker runs from a checkout, which is no installed package.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from worker.translation.rule import Decomposition, Rule

GROUP = "bessemer.translation_rules"

BUILT_IN: tuple[EntryPoint, ...] = tuple(
    EntryPoint(name=name, value=f"worker.translation.{name}:RULES", group=GROUP)
    for name in (
        "arithmetic",
        "attention",
        "complexes",
        "control",
        "convolutions",
        "creation",
        "embedding_bags",
        "functions",
        "grids",
        "indexing",
        "normalization",
        "pointwise",
        "pooling",
        "products",
        "reductions",
        "resizing",
        "scans",
        "selection",
        "shapes",
        "systems",
    )
)


class RuleError(Exception):
    """An entry point gives no rules, or two give one for the same operator."""


@dataclass(frozen=True)
class RuleBook:
    """Rules by operator, and the entry point that each comes from."""

    rules: dict[str, Rule]
    decompositions: dict[str, Decomposition]
    sources: dict[str, str]


@lru_cache(maxsize=1)
def rule_book() -> RuleBook:
    """The rules in force. An installed package's replace the built-in ones.

    Loading them imports the packages, so that the custom operators that they define are known to torch.

    Raises:
        RuleError: an entry point gives no rules, or two packages give one for the same operator.
    """
    return make_rule_book(BUILT_IN, entry_points(group=GROUP))


def make_rule_book(built_in: Iterable[EntryPoint], installed: Iterable[EntryPoint]) -> RuleBook:
    """The rules of entry points; see ``rule_book``."""
    ours, theirs = _collect(built_in), _collect(installed)
    chosen = {**ours, **theirs}
    rules = {operator: rule for operator, (rule, _) in chosen.items()}
    return RuleBook(
        rules={operator: rule for operator, rule in rules.items() if isinstance(rule, Rule)},
        decompositions={
            operator: rule for operator, rule in rules.items() if isinstance(rule, Decomposition)
        },
        sources={operator: source for operator, (_, source) in chosen.items()},
    )


def _collect(points: Iterable[EntryPoint]) -> dict[str, tuple[Rule | Decomposition, str]]:
    found: dict[str, tuple[Rule | Decomposition, str]] = {}
    for point in points:
        for rule in _load(point):
            if rule.operator in found:
                first = found[rule.operator][1]
                raise RuleError(f"two rules for {rule.operator}: of {first} and of {point.value}")
            found[rule.operator] = (rule, point.value)
    return found


def _load(point: EntryPoint) -> tuple[Rule | Decomposition, ...]:
    try:
        rules = point.load()
    except Exception as error:
        raise RuleError(f"{point.value} of {GROUP} does not load: {type(error).__name__}: {error}") from error
    if not isinstance(rules, tuple) or not all(isinstance(rule, Rule | Decomposition) for rule in rules):
        raise RuleError(f"{point.value} of {GROUP} is no tuple of rules")
    return rules
