"""What ranks the plans of a family before they are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import tvm


class Ranker(Protocol):
    """Predicts which plans of a function are fast."""

    @property
    def name(self) -> str:
        """For the report."""

    def scores(self, workload: tvm.IRModule, plans: Sequence[Any]) -> Sequence[float]:
        """A number for each plan, higher for a faster one.

        Args:
            workload: the function, ``main`` of a module.
            plans: its family's plans or some of them, in the family's order.
        """


class AnalyticRanker:
    """The order of the family, which follows the processor's model."""

    @property
    def name(self) -> str:
        """For the report."""
        return "analytic"

    def scores(self, workload: tvm.IRModule, plans: Sequence[Any]) -> Sequence[float]:
        """See ``Ranker.scores``."""
        return [-float(place) for place in range(len(plans))]
