"""What tuning records say of plans: by the numbers that traces note, a function's plans with their times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord

from worker.compiler.schedules.blocks import REFUSALS
from worker.compiler.schedules.default import ranked_plans
from worker.compiler.schedules.gpu.chips import gpu_in
from worker.compiler.schedules.plans import Numbers, noted_plan, numbers_of
from worker.compiler.schedules.processors import machine_of
from worker.compiler.tuning.cost_model.features import family_of, features_of, kind_of
from worker.compiler.tuning.cost_model.training import MeasuredFunction
from worker.compiler.tuning.stored_records import workload_of
from worker.compiler.tuning.trial_budget import best_of

_ENTRY = "main"


def functions_of_records(folder: Path) -> Iterator[MeasuredFunction]:
    """The functions of a JSON database of MetaSchedule's of which at least two plans have times.

    Records of other spaces have no plans and are left out, as are records for GPUs and those that no longer
    apply.
    """
    database = ms.database.JSONDatabase(
        str(folder / "database_workload.json"),
        str(folder / "database_tuning_record.json"),
        allow_missing=False,
    )
    by_function: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in database.get_all_tuning_records():
        by_function.setdefault((workload_of(record.workload.mod), str(record.target)), []).append(record)
    for (workload, _), records in by_function.items():
        found = _described(workload, records)
        if found is not None:
            yield found


def _described(workload: str, records: list[TuningRecord]) -> MeasuredFunction | None:
    module, target = records[0].workload.mod, records[0].target
    if target is None or gpu_in(target) is not None:
        return None
    if _ENTRY not in [variable.name_hint for variable in module.get_global_vars()]:
        return None
    timed: dict[int, float] = {}
    try:
        known, shapes = ranked_plans(module[_ENTRY], target)
    except REFUSALS:
        return None
    numbers = list(map(numbers_of, known))
    for record in records:
        seconds, noted = best_of(record.run_secs), _noted(record)
        if seconds is not None and 0 < seconds < float("inf") and noted in numbers:
            place = numbers.index(noted)
            timed[place] = min(seconds, timed.get(place, seconds))
    if len(timed) < 2:
        return None
    places = tuple(sorted(timed))
    plans: list[Any] = [known[place] for place in places]
    return MeasuredFunction(
        source=workload,
        family=family_of(plans[0]),
        kind=kind_of(target),
        features=tuple(features_of(plans, known, shapes, machine_of(target))),
        places=places,
        seconds=tuple(timed[place] for place in places),
    )


def _noted(record: TuningRecord) -> Numbers | None:
    try:
        return noted_plan(record.as_measure_candidate().sch.mod[_ENTRY])
    except REFUSALS:
        return None
