"""Rankers: they order a family's plans before any of them is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tvm

from bessemer.contract.report import ANALYTIC


class Ranker(Protocol):
    """Scores plans of a function's family.

    Attributes:
        name: what the report calls it.
    """

    name: str

    def scores(self, workload: tvm.IRModule, plans: Sequence[Any]) -> Sequence[float]:
        """A score for each plan; higher is better, and only scores of one call compare.

        Args:
            workload: the module whose function ``main`` the plans schedule.
            plans: plans of its family, in the family's order of preference.
        """


class AnalyticRanker:
    """Keeps the order of the families, which the processor's model gives."""

    name = ANALYTIC

    def scores(self, workload: tvm.IRModule, plans: Sequence[Any]) -> Sequence[float]:
        """See ``Ranker.scores``."""
        return [-float(place) for place, _ in enumerate(plans)]
