"""What a supervisor keeps of what a job reports of plans."""

from typing import Any

import pytest

from bessemer.contract.cost_model import MeasuredFunction
from bessemer.contract.records import SearchScope
from worker.errors import MisbehavedError
from worker.protocol.messages import MAX_REPORTED_FUNCTIONS, PlansMeasured
from worker.supervisor.kept_records import JobRecords

SCOPE = SearchScope(target="x86_64 znver4", threads=2, compiler="tvm", tvm_target="{}")
NOTHING: Any = None


def plans_of(function: str) -> PlansMeasured:
    measured = MeasuredFunction(
        source=function,
        family="matmul",
        kind="x86_64 256 parallel",
        features=({"rank": 0.0}, {"rank": 1.0}),
        places=(0, 1),
        seconds=(1.0, 2.0),
    )
    return PlansMeasured(function=measured)


async def test_a_job_reports_the_plans_of_so_many_functions_at_most() -> None:
    records = JobRecords(NOTHING, NOTHING, NOTHING, NOTHING, scope=SCOPE)
    for number in range(MAX_REPORTED_FUNCTIONS):
        await records.keep(plans_of(str(number)))
    with pytest.raises(MisbehavedError, match="more than 256 functions"):
        await records.keep(plans_of("another"))
    assert len(records.plans) == MAX_REPORTED_FUNCTIONS


async def test_plans_before_a_question_about_records_are_misbehavior() -> None:
    records = JobRecords(NOTHING, NOTHING, NOTHING, NOTHING)
    with pytest.raises(MisbehavedError, match="before it asked for records"):
        await records.keep(plans_of("1"))
    assert not records.plans
