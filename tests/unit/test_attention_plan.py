from math import ceil

import pytest

from worker.compiler.schedules.families.attention.plan import AttentionShape, plan_attention
from worker.compiler.schedules.processors import Machine

MACHINE = Machine(vector_bits=512, registers=32, threads=2)


@pytest.mark.parametrize(
    ("batches", "queries", "most_groups"),
    [(3, 197, 20), (12, 197, 78), (24, 197, 156), (1, 1024, 32), (7, 64, 14), (1, 5, 2)],
)
def test_the_busiest_thread_has_about_half_of_the_groups(
    batches: int, queries: int, most_groups: int
) -> None:
    plan = plan_attention(AttentionShape(batches, queries, queries, 64, 64, 32), MACHINE)
    groups = ceil(queries / plan.tile.queries)
    chunks = ceil(groups / plan.groups)
    tasks = ceil(batches * chunks / (MACHINE.threads if plan.parallel else 1))
    assert plan.groups <= 8
    assert ceil(tasks * groups / chunks) <= most_groups
