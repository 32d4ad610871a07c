"""All plans of a family agree, traces replay, and the first plan is the default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from family_samples import fuzz, run_compiled
from hypothesis import given
from hypothesis import strategies as st
from plan_samples import FUNCTIONS, TARGET, optimized
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.schedule import Trace

from worker.candidates.client import CandidateClient
from worker.compiler.schedules.default import default_schedule, follow_plans, plans_of, schedule_rest
from worker.compiler.schedules.plans import PLAN, NoSuchPlanError, numbers_of, space_of


def with_choices(module: tvm.IRModule) -> dict[Any, tuple[Any, ...]]:
    """The plans of the functions that have several."""
    functions = [pair for pair in module.functions_items() if isinstance(pair[1], tirx.PrimFunc)]
    plans = {variable: plans_of(function, TARGET) or () for variable, function in functions}
    return {variable: listed for variable, listed in plans.items() if len(listed) > 1}


def as_task(function: tirx.PrimFunc) -> tvm.IRModule:
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


@pytest.fixture(scope="module")
def modules() -> dict[str, tvm.IRModule]:
    return {name: optimized(name) for name in FUNCTIONS}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FUNCTIONS)
@fuzz(3)
@given(data=st.data())
def test_every_plan_agrees_with_the_default(
    server: CandidateClient,
    tmp_path: Path,
    modules: dict[str, tvm.IRModule],
    name: str,
    data: st.DataObject,
) -> None:
    module, inputs = modules[name].clone(), FUNCTIONS[name][1]
    choices = with_choices(module)
    assert choices
    expected = run_compiled(server, schedule_rest(module, TARGET), TARGET, inputs, tmp_path)
    for variable, plans in choices.items():
        plan = data.draw(st.sampled_from(plans), label=str(variable.name_hint))
        (point,) = space_of(plans, [plan]).generate_design_space(as_task(module[variable]))
        function = module[variable]
        module.update_func(variable, function.with_body(point.mod["main"].body))
    computed = run_compiled(server, schedule_rest(module, TARGET), TARGET, inputs, tmp_path)
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_trace_replays_from_json_and_the_first_plan_is_the_default(
    modules: dict[str, tvm.IRModule], name: str
) -> None:
    for variable, plans in with_choices(modules[name]).items():
        task = as_task(modules[name][variable])
        points = space_of(plans, [plans[0], plans[-1]]).generate_design_space(task)

        first = follow_plans(points[0].mod, TARGET)["main"]
        tvm.ir.assert_structural_equal(first, default_schedule(task["main"], TARGET))

        for point in points:
            replayed = s_tir.Schedule(task)
            Trace.apply_json_to_schedule(json.loads(json.dumps(plain(point.trace.as_json()))), replayed)
            tvm.ir.assert_structural_equal(replayed.mod, point.mod)
        last = follow_plans(points[1].mod, TARGET)["main"]
        assert not tvm_ffi.structural_equal(last, first)


def plain(value: Any) -> Any:
    """TVM's arrays and numbers as Python's."""
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    if isinstance(value, str | int | float | None):
        return value
    return [plain(each) for each in value]


def test_a_database_on_disk_gives_the_record_back(modules: dict[str, tvm.IRModule], tmp_path: Path) -> None:
    ((variable, plans),) = with_choices(modules["linear"]).items()
    task = as_task(modules["linear"][variable])
    (point,) = space_of(plans, [plans[-1]]).generate_design_space(task)
    files = (str(tmp_path / "workloads.json"), str(tmp_path / "records.json"))
    database = ms.database.JSONDatabase(*files)
    workload = database.commit_workload(task)
    arguments = ArgInfo.from_entry_func(task)
    database.commit_tuning_record(ms.database.TuningRecord(point.trace, workload, [1.0], TARGET, arguments))

    (record,) = ms.database.JSONDatabase(*files).get_all_tuning_records()

    replayed = record.as_measure_candidate().sch.mod
    annotations = replayed["main"].body.block.annotations
    assert {key: int(value) for key, value in annotations.items()} == {
        PLAN + key: value for key, value in numbers_of(plans[-1]).items()
    }
    tvm.ir.assert_structural_equal(follow_plans(replayed, TARGET), follow_plans(point.mod, TARGET))


def test_a_plan_of_another_family_is_refused(modules: dict[str, tvm.IRModule]) -> None:
    ((variable, _),) = with_choices(modules["linear"]).items()
    schedule = s_tir.Schedule(as_task(modules["linear"][variable]))
    schedule.annotate(schedule.get_sblock("root"), PLAN + "blocks", 3)

    with pytest.raises(NoSuchPlanError):
        follow_plans(schedule.mod, TARGET)
