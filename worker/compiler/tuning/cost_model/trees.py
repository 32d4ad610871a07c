"""The learned model as a file: regression trees for each family, and how well they rank other functions.

The file is JSON, read strictly: trees whose children follow their parents, of finite numbers, within limits.
So a hostile file can order plans badly, but do no other harm. This module imports neither torch nor TVM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, StringConstraints, ValidationError, model_validator

from bessemer.contract.base import Document
from bessemer.contract.cost_model import (
    FamilyName,
    FeatureName,
    FeaturesVersion,
    Judgement,
    RankedFamily,
)
from worker.compiler.tuning.cost_model.version import FEATURES

MAX_MODEL_BYTES = 1 << 20
MAX_FAMILIES = 32
MAX_KINDS = 32
_MAX_TREES = 500
_MAX_NODES = 255
MAX_NAMED_FEATURES = 500
_LEAF = -1

Place = Annotated[int, Field(strict=True, ge=_LEAF, le=_MAX_NODES)]


class CostModelError(ValueError):
    """The file is not a cost model for this version."""


class Tree(Document):
    """A regression tree, node by node; node 0 is the root.

    Attributes:
        left: the child for values below the threshold, -1 at a leaf; the other child follows it.
        feature: the place of the compared feature's name.
        value: the threshold, or the leaf's score.
        missing_left: whether a plan without the feature goes left.
    """

    left: tuple[Place, ...] = Field(min_length=1, max_length=_MAX_NODES)
    feature: tuple[Annotated[int, Field(strict=True, ge=0, lt=MAX_NAMED_FEATURES)], ...]
    value: tuple[FiniteFloat, ...]
    missing_left: tuple[Literal[0, 1], ...]

    @model_validator(mode="after")
    def _leads_to_leaves(self) -> Self:
        count = len(self.left)
        if {len(each) for each in (self.feature, self.value, self.missing_left)} != {count}:
            raise ValueError("a tree's lists differ in length")
        for node, left in enumerate(self.left):
            if left != _LEAF and left <= node:
                raise ValueError(f"node {node} does not lead to a leaf")
            if left + 1 >= count:
                raise ValueError(f"node {node} has a child that does not exist")
        return self


class FamilyModel(Document):
    """What was learned of one family's plans: a weighted sum of what the family expects, and the trees.

    Attributes:
        family: the family.
        prior: the weights of some features, by name; a plan without such a feature counts as 0.
        features: the names of those that the trees compare.
        trees: their scores are added.
        judged: how well it ranks, by kind of processor.
    """

    family: FamilyName
    prior: dict[FeatureName, FiniteFloat] = Field(max_length=MAX_NAMED_FEATURES)
    features: tuple[FeatureName, ...] = Field(max_length=MAX_NAMED_FEATURES)
    trees: tuple[Tree, ...] = Field(max_length=_MAX_TREES)
    judged: tuple[Judgement, ...] = Field(max_length=MAX_KINDS)

    @model_validator(mode="after")
    def _knows_its_features(self) -> Self:
        if any(max(tree.feature) >= len(self.features) for tree in self.trees):
            raise ValueError("a tree compares a feature that has no name")
        return self

    def scores(self, plans: Sequence[Mapping[str, float]]) -> list[float]:
        """A score for each plan, the higher the faster."""
        rows = [[plan.get(name, np.nan) for name in self.features] for plan in plans]
        matrix = np.array(rows, np.float32).reshape(len(plans), len(self.features))
        prior = [sum(weight * plan.get(name, 0.0) for name, weight in self.prior.items()) for plan in plans]
        scores = np.array(prior, np.float64)
        for tree in self.trees:
            scores += _leaves(tree, matrix)
        return [float(score) for score in scores]

    def is_better(self, kind: str) -> bool:
        """Whether it ranks better than the family's own model for processors of a kind."""
        return any(each.kind == kind and each.is_better for each in self.judged)


class CostModel(Document):
    """A model of several families.

    Attributes:
        format: the file's format.
        features_version: the version of the features that it compares.
        data: the digest of what it was trained on.
        functions: how many functions it was trained on.
        plans: how many plans it was trained on.
        source: what measured them, in words.
    """

    format: Literal[1] = 1
    features_version: FeaturesVersion
    data: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    functions: int = Field(strict=True, ge=0)
    plans: int = Field(strict=True, ge=0)
    source: Annotated[str, StringConstraints(pattern=r"^[ -~]{0,400}$")] = ""
    families: tuple[FamilyModel, ...] = Field(max_length=MAX_FAMILIES)

    @property
    def version(self) -> str:
        """The name of the model: a digest of the features' version and of the data."""
        return hashlib.sha256(f"{self.features_version}\n{self.data}".encode()).hexdigest()[:12]

    def serves(self, kind: str) -> bool:
        """Whether it ranks plans of any family better than the families, for processors of a kind."""
        return any(each.is_better(kind) for each in self.families)

    @property
    def accuracy(self) -> tuple[RankedFamily, ...]:
        """How well it ranks plans of functions that it has not seen."""
        return tuple(
            RankedFamily(family=each.family, used=judged.is_better, **judged.model_dump())
            for each in self.families
            for judged in each.judged
        )

    def of(self, family: str, kind: str) -> FamilyModel | None:
        """What ranks a family's plans better than its own model, for processors of a kind; None if none."""
        found = (each for each in self.families if each.family == family and each.is_better(kind))
        return next(found, None)


def read_model(text: bytes) -> CostModel:
    """The model in a file.

    Raises:
        CostModelError: the file is damaged, too large, or of another version.
    """
    if len(text) > MAX_MODEL_BYTES:
        raise CostModelError(f"a cost model has at most {MAX_MODEL_BYTES} bytes, not {len(text)}")
    try:
        model = CostModel.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise CostModelError(f"not a cost model: {place or 'the file'}: {first['msg']}") from error
    if model.features_version != FEATURES:
        raise CostModelError(
            f"the cost model was trained on features of version {model.features_version}, and this is "
            f"{FEATURES}: train it again"
        )
    return model


def write_model(model: CostModel) -> bytes:
    """A model as a file."""
    return model.model_dump_json().encode() + b"\n"


SHIPPED = "shipped.json"


@cache
def shipped_model() -> CostModel | None:
    """The model that ships with the project; None if its features are of an earlier version."""
    return _model_in(Path(str(resources.files(__package__))) / SHIPPED)


def models_of(own: Path | None) -> tuple[CostModel, ...]:
    """The models that may rank plans: the tenant's own, if a file holds one, and the one that ships."""
    models = (None if own is None else _model_in(own), shipped_model())
    return tuple(model for model in models if model is not None)


def _model_in(file: Path) -> CostModel | None:
    try:
        return read_model(file.read_bytes())
    except (FileNotFoundError, CostModelError):
        return None


def _leaves(tree: Tree, matrix: np.ndarray) -> np.ndarray:
    """The score of each row; all rows step down together."""
    left = np.array(tree.left)
    feature, value = np.array(tree.feature), np.array(tree.value, np.float32)
    missing_left = np.array(tree.missing_left, bool)
    rows, nodes = np.arange(len(matrix)), np.zeros(len(matrix), int)
    while (inner := left[nodes] != _LEAF).any():
        compared = matrix[rows, feature[nodes]]
        goes_left = np.where(np.isnan(compared), missing_left[nodes], compared < value[nodes])
        nodes = np.where(inner, left[nodes] + ~goes_left, nodes)
    return value[nodes].astype(np.float64)
