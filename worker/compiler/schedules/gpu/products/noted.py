"""Plans of products as a search notes them: the same numbers for every kind of plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from worker.compiler.schedules.gpu.products.plan import Plan, TilePlan, Unit


@dataclass(frozen=True)
class NotedPlan:
    """The numbers of a ``TilePlan``, a ``SkinnyPlan`` or a ``DirectPlan``; those that it lacks are 0.

    Attributes:
        unit: the position in ``Unit``, from 1.
    """

    unit: int = 0
    rows: int = 0
    columns: int = 0
    depth: int = 0
    warp_rows: int = 0
    warp_columns: int = 0
    stages: int = 0
    column_lanes: int = 0
    depth_lanes: int = 0
    own_columns: int = 0
    steps: int = 0
    vector: int = 0
    pixels: int = 0
    threads: int = 0
    splits: int = 1


def noted(plan: Plan) -> NotedPlan:
    """A plan's numbers."""
    if not isinstance(plan, TilePlan):
        return NotedPlan(**asdict(plan))
    numbers = {name: value for name, value in asdict(plan).items() if name != "unit"}
    return NotedPlan(unit=1 + list(Unit).index(plan.unit), **numbers)
