"""Plans of products as a search notes them: the same numbers for every kind of plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from worker.compiler.schedules.gpu.products.plan import Plan, SkinnyPlan, Unit


@dataclass(frozen=True)
class NotedPlan:
    """The numbers of a ``TilePlan`` or a ``SkinnyPlan``; those that it lacks are 0.

    Attributes:
        tensor: whether tensor cores multiply.
    """

    tensor: bool = False
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
    splits: int = 1


def noted(plan: Plan) -> NotedPlan:
    """A plan's numbers."""
    if isinstance(plan, SkinnyPlan):
        return NotedPlan(**asdict(plan))
    numbers = {name: value for name, value in asdict(plan).items() if name != "unit"}
    return NotedPlan(tensor=plan.unit is Unit.TENSOR, **numbers)
