"""Evolution of plans where a family has many: pure functions of what was measured.

A generation takes the fastest plans measured so far as parents. Children take each number from one of two
parents (crossover), then one number moves to another of its values (mutation). Only plans that the family
has, and that were not measured, live on; those that come first in the ranker's order are measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from random import Random

from worker.compiler.schedules.plans import Numbers

LARGE = 64
"""A space of more plans is evolved; a smaller one is measured in order."""

_PARENTS = 8
_CHILDREN = 8
"""Children for each plan that is measured."""
_ATTEMPTS = 8
"""Draws for each child that is wanted: most combinations of numbers are not plans, or were measured."""
_NEIGHBORS = 2
_ADVISED_SHARE = 0.5
_EXPLORED_SHARE = 0.25
"""The share of a generation that takes the ranker's first choices in the whole space, not children."""


def next_generation(
    plans: Sequence[Numbers],
    measured: Mapping[int, float | None],
    advised: Sequence[int],
    count: int,
    random: Random,
) -> tuple[int, ...]:
    """The plans to measure next.

    Args:
        plans: the numbers of every plan, as a ranker orders them.
        measured: seconds by a plan's index, None where unknown.
        advised: plans that were fast for similar functions.
        count: maximum number to choose.
        random: the source of chance.

    Returns:
        Indices of plans without a measurement, the ones to measure first in front.
    """
    left = [index for index in range(len(plans)) if index not in measured]
    from_advice = _fresh(advised, measured, count)
    explored = left[: max(1, int(_EXPLORED_SHARE * count))]
    children = sorted(_children(plans, measured, count * _CHILDREN, random))
    return tuple(dict.fromkeys((*from_advice, *explored, *children, *left)))[:count]


def with_advice(
    chosen: Sequence[int], advised: Sequence[int], measured: Mapping[int, float | None], count: int
) -> tuple[int, ...]:
    """Plans to measure next, up to half of them as similar functions advise.

    Args:
        chosen: the plans that a search would measure without advice.
        advised: plans that were fast for similar functions.
        measured: seconds by a plan's index, None where unknown.
        count: maximum number to choose.
    """
    return tuple(dict.fromkeys((*_fresh(advised, measured, count), *chosen)))[:count]


def nearest_plans(plans: Sequence[Numbers], wanted: Iterable[Numbers]) -> tuple[int, ...]:
    """For each wanted plan of another function, the most similar one of the same family.

    Numbers are compared by their ratio, so that a tile of 14 columns is nearer to 12 than 2 to 1.
    """
    names = set(plans[0]) if plans else set()
    found = (
        min(range(len(plans)), key=lambda index: _distance(plans[index], other))
        for other in wanted
        if set(other) == names
    )
    return tuple(dict.fromkeys(found))


def _fresh(advised: Sequence[int], measured: Mapping[int, float | None], count: int) -> list[int]:
    fresh = [index for index in dict.fromkeys(advised) if index not in measured]
    return fresh[: max(1, int(_ADVISED_SHARE * count))]


def _children(
    plans: Sequence[Numbers], measured: Mapping[int, float | None], count: int, random: Random
) -> list[int]:
    ran = {index: seconds for index, seconds in measured.items() if seconds is not None}
    parents = [plans[index] for index in sorted(ran, key=lambda index: ran[index])[:_PARENTS]]
    if not parents:
        return []
    places = {tuple(plan.values()): index for index, plan in enumerate(plans)}
    values = {name: sorted({plan[name] for plan in plans}) for name in plans[0]}
    draws = (_child(parents, values, random) for _ in range(count * _ATTEMPTS))
    indices = (places.get(tuple(child.values())) for child in draws)
    fresh = (index for index in indices if index is not None and index not in measured)
    return list(dict.fromkeys(islice(fresh, count)))


def _child(parents: Sequence[Numbers], values: Mapping[str, Sequence[int]], random: Random) -> Numbers:
    """Numbers of two parents, the fitter ones more often, one of them moved."""
    first, second = (parents[min(random.randrange(len(parents)) for _ in range(2))] for _ in range(2))
    child = {name: random.choice((first[name], second[name])) for name in first}
    changed = random.choice(list(child))
    own = values[changed]
    place = own.index(child[changed]) + random.choice((-1, 1)) * random.randint(1, _NEIGHBORS)
    child[changed] = own[min(max(place, 0), len(own) - 1)]
    return child


def _distance(plan: Numbers, other: Numbers) -> float:
    pairs = ((plan[name] + 1, other[name] + 1) for name in plan)
    return sum(max(one / two, two / one) - 1 for one, two in pairs)
