"""Plans as the cost model sees them, and who ranks them."""

from __future__ import annotations

from math import isfinite

import pytest
import tvm
from family_samples import target_of
from plan_samples import TARGET, optimized
from tvm import tirx

from bessemer.contract.cost_model import Judgement
from bessemer.contract.report import ANALYTIC
from bessemer.contract.request import CompilationRequest
from bessemer.contract.target import LINUX_X86_64, ExplicitTarget, resolve_target
from bessemer.contract.triple import WINDOWS_X86_64
from worker.compiler.schedules.default import ranked_plans, schedule_rest
from worker.compiler.schedules.plans import noted_plan, numbers_of
from worker.compiler.schedules.processors import machine_of
from worker.compiler.target import compile_target
from worker.compiler.tuning.cost_model import measured
from worker.compiler.tuning.cost_model.features import family_of, features_of
from worker.compiler.tuning.cost_model.ranking import in_order, preferred_plans, ranker_for
from worker.compiler.tuning.cost_model.trees import CostModel, FamilyModel
from worker.compiler.tuning.cost_model.version import FEATURES
from worker.errors import JobError
from worker.job.compilation import refuse_search

FAMILIES = {
    "matmul": ("linear", True),
    "convolution": ("convolution", True),
    "winograd": ("winograd", True),
    "grouped": ("grouped", True),
    "window": ("depthwise", False),
    "rows": ("softmax", False),
}
"""A function of each family, and whether the family counts cycles."""


def function_of(module: tvm.IRModule, family: str) -> tirx.PrimFunc:
    """The function that the family has plans for."""
    functions = [each for each in module.functions.values() if isinstance(each, tirx.PrimFunc)]
    return next(
        each
        for each in functions
        if (plans := ranked_plans(each, TARGET).plans) and family_of(plans[0]) == family
    )


def reversing(family: str, kind: str = "x86_64 256 parallel") -> CostModel:
    """A model that prefers the family's last plan, and was better with it."""
    better = Judgement(
        kind=kind, functions=9, pairs=90, accuracy=0.9, analytic_accuracy=0.8, regret=0.0, analytic_regret=0.1
    )
    learned = FamilyModel(family=family, prior={"rank": 1.0}, features=(), trees=(), judged=(better,))
    return CostModel(features_version=FEATURES, data="0" * 64, functions=9, plans=99, families=(learned,))


@pytest.mark.parametrize("family", FAMILIES)
def test_plans_are_described_by_sizes_and_by_what_their_family_expects(family: str) -> None:
    name, counts_cycles = FAMILIES[family]
    plans, shapes = ranked_plans(function_of(optimized(name), family), TARGET)

    described = features_of(plans, plans, shapes, machine_of(TARGET))

    assert len({tuple(sorted(each.items())) for each in described}) == len(plans) > 1
    assert all(isfinite(number) for each in described for number in each.values())
    assert described[0]["rank"] == 0 < described[1]["rank"]
    assert ("cycles" in described[0]) is counts_cycles
    assert any(name.startswith(type(shapes[0]).__name__) for name in described[0])


@pytest.mark.parametrize(
    ("model", "target", "learned"),
    [
        (reversing("matmul"), TARGET, True),
        (reversing("rows"), TARGET, False),
        (reversing("matmul"), target_of("x86-64-v4"), False),
        (reversing("matmul"), target_of("x86-64-v3", cores=1), False),
        (None, TARGET, False),
    ],
    ids=["served", "another family", "wider vectors", "one thread", "no model"],
)
def test_the_model_ranks_only_what_it_was_better_for(
    model: CostModel | None, target: tvm.target.Target, learned: bool
) -> None:
    function = function_of(optimized("linear"), "matmul")
    plans = ranked_plans(function, target).plans

    ranker = ranker_for(plans, target, () if model is None else (model,))
    ordered = in_order(tvm.IRModule({"main": function}), plans, ranker)

    assert ordered == (tuple(reversed(plans)) if learned else plans)
    assert ranker.name == (f"learned {model.version}" if learned and model else ANALYTIC)


def test_without_measurements_functions_carry_the_plan_that_the_model_prefers() -> None:
    module = optimized("linear")
    plans = ranked_plans(function_of(module, "matmul"), TARGET).plans
    model = reversing("matmul")

    chosen, rankers = preferred_plans(module, TARGET, (model,))

    functions = [each for each in chosen.functions.values() if isinstance(each, tirx.PrimFunc)]
    assert [each for each in map(noted_plan, functions) if each] == [numbers_of(plans[-1])]
    assert rankers[f"learned {model.version}"] == 1
    schedule_rest(chosen, TARGET)


@pytest.mark.parametrize(
    ("triple", "mcpu", "kind", "ranks"),
    [
        (WINDOWS_X86_64, "x86-64-v4", "x86_64 512 parallel", True),
        (WINDOWS_X86_64, "x86-64-v4", "x86_64 256 parallel", False),
        (WINDOWS_X86_64, "x86-64-v4", "x86_64 512 serial", False),
        ("aarch64-unknown-linux-gnu", "generic", "x86_64 512 parallel", False),
        (LINUX_X86_64, "x86-64", "x86_64 128 parallel", False),
    ],
    ids=["served", "narrower vectors", "one thread", "another architecture", "this processor"],
)
def test_a_search_that_nothing_measures_needs_a_model_for_its_processor(
    triple: str, mcpu: str, kind: str, ranks: bool
) -> None:
    target = ExplicitTarget(kind="llvm", mcpu=mcpu, triple=triple)
    request = CompilationRequest.model_validate(
        {"model": "0" * 64, "target": target, "verification": "none", "tune": {"trials": 8}}
    )
    resolved = compile_target(resolve_target(target, "x86-64", 2))

    if ranks:
        refuse_search(request, resolved, models=(reversing("matmul", kind),))
        return
    with pytest.raises(JobError, match="a search measures code"):
        refuse_search(request, resolved, models=(reversing("matmul", kind),))


def test_the_first_model_that_was_better_ranks_the_plans() -> None:
    plans = ranked_plans(function_of(optimized("linear"), "matmul"), TARGET).plans
    own, shipped = reversing("matmul"), reversing("matmul").model_copy(update={"data": "1" * 64})

    assert ranker_for(plans, TARGET, (own, shipped)).name == f"learned {own.version}"
    assert ranker_for(plans, TARGET, (reversing("rows"), shipped)).name == f"learned {shipped.version}"


@pytest.mark.parametrize(
    ("most", "timed", "expected"), [(32, 0, None), (32, 1, None), (32, 2, 2), (4, 4, 4), (4, 9, 4)]
)
def test_measured_plans_are_what_the_model_learns_from(
    most: int, timed: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "MAX_PLANS", most)
    module = tvm.IRModule({"main": function_of(optimized("linear"), "matmul")})
    plans = ranked_plans(module["main"], TARGET).plans[:timed]

    found = measured.measured_function(
        module, {plan: 1.0 + place for place, plan in enumerate(plans)}, TARGET
    )

    if found is None:
        assert expected is None
        return
    assert (found.family, found.kind, len(found.seconds)) == ("matmul", "x86_64 256 parallel", expected)
    assert (found.places[0], found.places[-1]) == (0, len(plans) - 1)
    assert found.seconds == tuple(1.0 + place for place in found.places)
    assert found.features[0]["rank"] == 0 < found.features[1]["rank"]
