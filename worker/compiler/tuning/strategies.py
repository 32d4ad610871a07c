"""Search strategies of extensions, which a request names for MetaSchedule's search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm.s_tir.meta_schedule.search_strategy import SearchStrategy

from worker.compiler.extensions import ExtensionPoint, cached_book


@dataclass(frozen=True)
class Strategy:
    """A search strategy.

    Attributes:
        name: the name in a request.
        make: returns a new strategy of MetaSchedule for one search.
        summary: describes it in a line.
    """

    name: str
    make: Callable[[], SearchStrategy]
    summary: str


POINT: ExtensionPoint[Strategy] = ExtensionPoint(
    group="bessemer.search_strategies",
    attribute="STRATEGIES",
    kinds=(Strategy,),
    name_of=lambda strategy: strategy.name,
    built_in=(),
)


@cached_book
def strategy_book() -> dict[str, Strategy]:
    """The strategies in force, by name.

    Raises:
        ExtensionError: an extension does not give strategies, or two give one of the same name.
    """
    return POINT.in_force(POINT.installed())
