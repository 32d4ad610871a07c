"""Trains the cost model on measured plans, and judges it on functions that it has not seen.

For each family, gradient-boosted trees learn the logarithms of times relative to the mean of their function,
so only the order and the distances within a function count. Functions are held out by where they come from, a
model or a record, in turns; the trees that are kept have then seen all.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import expm1, log
from typing import Any

import numpy as np

from bessemer.contract.cost_model import Features, Judgement, MeasuredFunction
from worker.compiler.tuning.cost_model.trees import (
    MAX_FAMILIES,
    MAX_KINDS,
    MAX_NAMED_FEATURES,
    CostModel,
    FamilyModel,
    Tree,
)
from worker.compiler.tuning.cost_model.version import FEATURES

CLEARLY = 1.03
"""Times whose quotient is smaller count as equal."""

_FOLDS = 5
_ROUNDS = 40
_SLOWEST = 1.4
"""The logarithm of the slowness, beside the fastest plan, beyond which all plans count alike."""

_EXPECTED = ("cycles.ratio", "rank")
_SETTINGS = {
    "objective": "reg:squarederror",
    "max_depth": 3,
    "eta": 0.12,
    "subsample": 0.8,
    "colsample_bytree": 0.6,
    "min_child_weight": 4,
    "lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 64,
}


def train(
    functions: Sequence[MeasuredFunction], seed: int = 0, threads: int = 1, source: str = ""
) -> CostModel:
    """A model of all families in the data, as far as a file may have them: the most frequent ones.

    Args:
        functions: the data.
        seed: the seed of the trees' samples.
        threads: the threads that train.
        source: what measured the data, in words.
    """
    counts = Counter(each.family for each in functions)
    families = sorted(family for family, _ in counts.most_common(MAX_FAMILIES))
    return CostModel(
        features_version=FEATURES,
        data=_digest(functions),
        functions=len(functions),
        plans=sum(len(each.seconds) for each in functions),
        source=source,
        families=tuple(
            _of_family(family, [each for each in functions if each.family == family], seed, threads)
            for family in families
        ),
    )


def _of_family(family: str, functions: Sequence[MeasuredFunction], seed: int, threads: int) -> FamilyModel:
    unseen: list[tuple[MeasuredFunction, list[float]]] = []
    for fold in range(_FOLDS):
        held = [each for each in functions if fold_of(each.source) == fold]
        rest = [each for each in functions if fold_of(each.source) != fold]
        if held and rest:
            model = _learned(family, rest, seed, threads)
            unseen += [(each, model.scores(each.features)) for each in held]
    counts = Counter(each.kind for each, _ in unseen)
    kinds = sorted(kind for kind, _ in counts.most_common(MAX_KINDS))
    judged = tuple(_judge(kind, [one for one in unseen if one[0].kind == kind]) for kind in kinds)
    return _learned(family, functions, seed, threads).model_copy(update={"judged": judged})


def fold_of(source: str) -> int:
    """The turn in which functions of a source are held out."""
    return int(hashlib.sha256(source.encode()).hexdigest(), 16) % _FOLDS


def _learned(family: str, functions: Sequence[MeasuredFunction], seed: int, threads: int) -> FamilyModel:
    counts = Counter(name for each in functions for plan in each.features for name in plan)
    names = tuple(sorted(name for name, _ in counts.most_common(MAX_NAMED_FEATURES)))
    prior = _prior(functions)
    trees = _trees(functions, names, prior, seed, threads)
    return FamilyModel(family=family, prior=prior, features=names, trees=trees, judged=())


def _prior(functions: Sequence[MeasuredFunction]) -> dict[str, float]:
    """The weights of the family's expectations that best explain the speeds, by least squares."""
    rows = np.concatenate([_centered(np.nan_to_num(_matrix(each.features, _EXPECTED))) for each in functions])
    speeds = np.concatenate([_speeds(each.seconds) for each in functions])
    weights, *_ = np.linalg.lstsq(rows, speeds, rcond=None)
    return {name: float(f"{weight:.6g}") for name, weight in zip(_EXPECTED, weights, strict=True)}


def _trees(
    functions: Sequence[MeasuredFunction],
    names: Sequence[str],
    prior: Mapping[str, float],
    seed: int,
    threads: int,
) -> tuple[Tree, ...]:
    """Trees for the part of the speeds that the prior does not explain; each function counts alike."""
    import xgboost

    rows = np.concatenate([_matrix(each.features, names) for each in functions])
    left = [_speeds(each.seconds) - _centered(_expected(each.features, prior)) for each in functions]
    weights = [10 / len(each.seconds) for each in functions for _ in each.seconds]
    data = xgboost.DMatrix(rows, np.concatenate(left), weight=np.array(weights))
    settings = {**_SETTINGS, "seed": seed, "nthread": threads, "base_score": 0.0}
    booster = xgboost.train(settings, data, num_boost_round=_ROUNDS)
    document = json.loads(bytes(booster.save_raw("json")))
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    return tuple(tree_of(each) for each in trees)


def _matrix(plans: Sequence[Features], names: Sequence[str]) -> np.ndarray:
    return np.array([[plan.get(name, np.nan) for name in names] for plan in plans], np.float32)


def _expected(plans: Sequence[Features], prior: Mapping[str, float]) -> np.ndarray:
    return np.array([sum(weight * plan.get(name, 0.0) for name, weight in prior.items()) for plan in plans])


def _speeds(seconds: Sequence[float]) -> np.ndarray:
    """Logarithms, relative to the function's mean. How slow a very slow plan is does not matter."""
    slowness = np.log(np.array(seconds) / min(seconds))
    return -_centered(np.minimum(slowness, _SLOWEST))


def _centered(values: np.ndarray) -> np.ndarray:
    return values - np.mean(values, axis=0)


def tree_of(document: dict[str, Any]) -> Tree:
    """A tree of XGBoost's JSON; the conditions of its leaves are their scores."""
    left = document["left_children"]
    if any(
        child != -1 and other != child + 1
        for child, other in zip(left, document["right_children"], strict=True)
    ):
        raise ValueError("XGBoost numbers the nodes of a tree otherwise than expected")
    leaves = [child == -1 for child in left]
    return Tree(
        left=tuple(left),
        feature=tuple(
            0 if leaf else each for leaf, each in zip(leaves, document["split_indices"], strict=True)
        ),
        value=tuple(
            float(f"{each:.5g}" if leaf else f"{each:.9g}")
            for leaf, each in zip(leaves, document["split_conditions"], strict=True)
        ),
        missing_left=tuple(int(bool(each)) for each in document["default_left"]),
    )


def _judge(kind: str, ranked: Sequence[tuple[MeasuredFunction, Sequence[float]]]) -> Judgement:
    ours, theirs, pairs = 0.0, 0.0, 0
    regrets, analytic_regrets = [], []
    for function, scores in ranked:
        preferences = [-float(place) for place in function.places]
        times = function.seconds
        for one, other in combinations(range(len(times)), 2):
            if max(times[one], times[other]) > CLEARLY * min(times[one], times[other]):
                pairs += 1
                ours += _agrees(scores, times, one, other)
                theirs += _agrees(preferences, times, one, other)
        regrets.append(_slowness(times, scores))
        analytic_regrets.append(_slowness(times, preferences))
    return Judgement(
        kind=kind,
        functions=len(ranked),
        pairs=pairs,
        accuracy=ours / max(1, pairs),
        analytic_accuracy=theirs / max(1, pairs),
        regret=_mean_regret(regrets),
        analytic_regret=_mean_regret(analytic_regrets),
    )


def _slowness(times: Sequence[float], scores: Sequence[float]) -> float:
    """The logarithm of the first choice's time, relative to the fastest plan's."""
    return log(times[int(np.argmax(scores))] / min(times))


def _mean_regret(slowness: Sequence[float]) -> float:
    return expm1(float(np.mean(slowness)))


def _agrees(scores: Sequence[float], times: Sequence[float], one: int, other: int) -> float:
    """1 if the faster plan has the higher score, one half if both scores are equal."""
    if scores[one] == scores[other]:
        return 0.5
    return float((scores[one] > scores[other]) == (times[one] < times[other]))


def _digest(functions: Sequence[MeasuredFunction]) -> str:
    lines = sorted(each.model_dump_json() for each in functions)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
