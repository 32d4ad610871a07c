"""The learned cost model: what it learns, and the files that it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bessemer.contract.cost_model import MIN_FUNCTIONS, Judgement, MeasuredFunction
from worker.compiler.tuning.cost_model import trees
from worker.compiler.tuning.cost_model.training import train
from worker.compiler.tuning.cost_model.trees import (
    MAX_MODEL_BYTES,
    MAX_NAMED_FEATURES,
    CostModelError,
    FamilyModel,
    Tree,
    read_model,
    write_model,
)

AVX2, AVX512 = "x86_64 256 serial", "x86_64 512 serial"
STUMP = Tree(left=(1, -1, -1), feature=(0, 0, 0), value=(2.0, -1.0, 1.0), missing_left=(1, 0, 0))


def measured(source: str, draws: Random) -> MeasuredFunction:
    """A function whose fastest plans are wide, which the family's own order does not know."""
    widths = [float(draws.randrange(1, 9)) for _ in range(10)]
    return MeasuredFunction(
        source=source,
        family="product",
        kind=AVX2,
        features=tuple({"width": width, "noise": draws.random()} for width in widths),
        places=tuple(range(10)),
        seconds=tuple(1.0 / width for width in widths),
    )


def functions(count: int = 40) -> list[MeasuredFunction]:
    draws = Random(1)
    return [measured(f"model-{number}", draws) for number in range(count)]


def test_it_learns_what_the_familys_order_does_not_know_and_is_judged_on_unseen_functions() -> None:
    model = train(functions())

    (family,) = model.families
    (judged,) = family.judged
    assert judged.functions == 40
    assert judged.accuracy > 0.95 > 0.7 > judged.analytic_accuracy
    assert judged.is_better
    assert model.of("product", AVX2) == family
    narrow, wide = family.scores([{"width": 1.0}, {"width": 8.0}])
    assert wide > narrow


def test_features_of_few_functions_are_left_out_beyond_the_limit() -> None:
    names = [[f"odd-{function}-{number}" for number in range(100)] for function in range(8)]
    odd = [
        measured("odd", Random(1)).model_copy(update={"features": (dict.fromkeys(each, 1.0),) * 10})
        for each in names
    ]
    (family,) = train([*functions(), *odd]).families

    assert len(family.features) == MAX_NAMED_FEATURES
    assert {"width", "noise"} <= set(family.features)


def test_training_again_gives_the_same_bytes() -> None:
    assert write_model(train(functions())) == write_model(train(functions()))


def test_other_data_gives_another_version() -> None:
    assert train(functions()).version != train(functions(39)).version


def test_its_trees_score_as_those_of_xgboost() -> None:
    import numpy as np
    import xgboost

    draws = np.random.default_rng(0)
    rows = draws.standard_normal((200, 3)).astype(np.float32)
    rows[draws.random(rows.shape) < 0.2] = np.nan
    goal = np.nansum(rows, axis=1) + (rows[:, 1] > 0.3)
    booster = xgboost.train(
        {"max_depth": 4, "base_score": 0.0, "nthread": 1}, xgboost.DMatrix(rows, goal), num_boost_round=20
    )
    document = json.loads(bytes(booster.save_raw("json")))
    grown = document["learner"]["gradient_booster"]["model"]["trees"]
    from worker.compiler.tuning.cost_model.training import tree_of

    model = FamilyModel(
        family="any", prior={}, features=("a", "b", "c"), trees=tuple(map(tree_of, grown)), judged=()
    )
    named = [
        {name: float(value) for name, value in zip("abc", row, strict=True) if not np.isnan(value)}
        for row in rows
    ]

    assert np.allclose(model.scores(named), booster.predict(xgboost.DMatrix(rows)), atol=1e-4)


def test_a_plan_without_the_feature_goes_where_the_tree_says() -> None:
    model = FamilyModel(family="any", prior={}, features=("width",), trees=(STUMP,), judged=())

    assert model.scores([{"width": 1.0}, {"width": 3.0}, {}]) == [-1.0, 1.0, -1.0]
    assert model.scores([]) == []


@pytest.mark.parametrize(
    ("changes", "is_better"),
    [
        ({}, True),
        ({"functions": MIN_FUNCTIONS - 1}, False),
        ({"accuracy": 0.7}, False),
        ({"regret": 0.2}, False),
    ],
    ids=["better", "too few functions", "not better in pairs", "not better in the first choice"],
)
def test_it_is_used_only_where_both_figures_are_better(changes: dict[str, Any], is_better: bool) -> None:
    judged = Judgement(
        kind=AVX512,
        functions=20,
        pairs=900,
        accuracy=0.8,
        analytic_accuracy=0.7,
        regret=0.1,
        analytic_regret=0.2,
    )

    assert judged.model_copy(update=changes).is_better is is_better


def _edited(change: Callable[[Any], None]) -> bytes:
    document = json.loads(write_model(train(functions(8))))
    change(document)
    return json.dumps(document).encode()


def _first_tree(document: Any) -> Any:
    return document["families"][0]["trees"][0]


def _compare_nothing(document: Any) -> None:
    family = document["families"][0]
    family["features"] = []
    for tree in family["trees"]:
        tree["feature"] = [0] * len(tree["feature"])


DAMAGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "a cycle": (lambda document: _first_tree(document)["left"].__setitem__(0, 0), "does not lead to a leaf"),
    "a missing child": (
        lambda document: _first_tree(document)["left"].__setitem__(0, 254),
        "does not exist",
    ),
    "lists of two lengths": (lambda document: _first_tree(document)["value"].pop(), "differ in length"),
    "an unnamed feature": (
        lambda document: document["families"][0].__setitem__("features", []),
        "a feature that has no name",
    ),
    "a comparison without features": (_compare_nothing, "a feature that has no name"),
    "a number that is not finite": (
        lambda document: _first_tree(document)["value"].__setitem__(0, "NaN"),
        "finite",
    ),
    "an unknown field": (lambda document: document.__setitem__("code", "import os"), "Extra inputs"),
    "another version": (lambda document: document.__setitem__("features_version", "0.0"), "train it again"),
    "another format": (lambda document: document.__setitem__("format", 2), "format"),
    "a text for a number": (lambda document: _first_tree(document)["left"].__setitem__(0, "1"), "integer"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused_with_the_reason(name: str) -> None:
    change, reason = DAMAGES[name]

    with pytest.raises(CostModelError, match=reason):
        read_model(_edited(change))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x80\x04\x95pickle",
        b"[" * 100_000,
        b"{}",
        b"null",
        b'{"format": 1}',
        b" " * (MAX_MODEL_BYTES + 1),
    ],
    ids=["empty", "a pickle", "deep", "no fields", "null", "few fields", "large"],
)
def test_other_bytes_are_refused(text: bytes) -> None:
    with pytest.raises(CostModelError):
        read_model(text)


def test_a_damaged_model_of_the_tenant_leaves_the_one_that_ships(tmp_path: Path) -> None:
    file = tmp_path / "cost-model.json"
    file.write_bytes(b"{}")
    assert trees.models_of(file) == trees.models_of(None) == (trees.shipped_model(),)
    own = train(functions(8))
    file.write_bytes(write_model(own))
    assert trees.models_of(file)[0] == own


def test_a_written_model_reads_as_it_was() -> None:
    model = train(functions(10))

    assert read_model(write_model(model)) == model


def test_the_model_that_ships_is_small_and_of_this_version() -> None:
    model = trees.shipped_model()

    assert model is not None
    assert len(write_model(model)) <= 300 * 1024
    assert {judged.kind for family in model.families for judged in family.judged} >= {AVX2, AVX512}
