"""What a job may tell of its trials."""

from typing import Any

import pytest
from pydantic import ValidationError

from bessemer.contract.options import MAX_TRIALS
from worker.protocol.messages import MAX_SIZED_FUNCTIONS, NearRecordsRequested, TrialsMeasured


@pytest.mark.parametrize(
    "changed",
    [
        {"first": -1},
        {"first": MAX_TRIALS + 1},
        {"elapsed_seconds": float("inf")},
        {"workloads": {"x": "packed"}},
        {"workloads": {"1": "packed", "2": "packed"}},
    ],
)
def test_numbers_that_no_database_stores_are_refused(changed: dict[str, Any]) -> None:
    given = {"first": 0, "trials": [], "elapsed_seconds": 1.0}
    TrialsMeasured.model_validate(given)
    with pytest.raises(ValidationError):
        TrialsMeasured.model_validate(given | changed)


SIZED = {"workload": "1", "kinds": ["0" * 64], "extents": [64, 56]}


@pytest.mark.parametrize(
    "functions",
    [
        [SIZED | {"extents": [0]}],
        [SIZED | {"extents": [1.5]}],
        [SIZED | {"extents": [1] * 33}],
        [SIZED | {"kinds": ["0" * 64] * 3}],
        [SIZED | {"kinds": ["convolution"]}],
        [SIZED] * (MAX_SIZED_FUNCTIONS + 1),
    ],
)
def test_a_question_about_similar_functions_is_bounded(functions: list[dict[str, Any]]) -> None:
    NearRecordsRequested.model_validate({"functions": [SIZED] * MAX_SIZED_FUNCTIONS})
    with pytest.raises(ValidationError):
        NearRecordsRequested.model_validate({"functions": functions})
